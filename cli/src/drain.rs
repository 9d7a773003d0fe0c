//! `presence drain`: send an edge away, and wait until it has gone.

use std::process::ExitCode;
use std::time::Duration;

use presence_client::{Client, EdgeDrain};
use presence_model::id::{EdgeName, Incarnation};
use presence_runtime::clock::Clock;
use serde_json::json;

use crate::args::DrainArgs;
use crate::paint;
use crate::remote::with_client_until_told;

/// How often it is asked how far it is.
const ASK_EVERY: Duration = Duration::from_secs(1);

/// Sends the edge away and tells how far it is.
pub(crate) fn run(args: DrainArgs) -> anyhow::Result<ExitCode> {
    let name = EdgeName::new(args.edge)?;
    let mut teller = Teller { name: name.clone(), json: args.json, several: false };
    let wait = (!args.no_wait).then_some(args.within);
    // Whoever ends the wait, the edge has not gone by that: a script must not take it so.
    let told = || still_there("told to end before the edge has gone; once it is told, it goes on to go");
    with_client_until_told(args.core, told, move |client| async move {
        let runs = client.drain_edge(&name, None).await?;
        teller.several = runs.len() > 1;
        for run in &runs {
            teller.left(*run)?;
        }
        match wait {
            Some(within) => wait_until_gone(&client, runs, &teller, within).await,
            None => Ok(ExitCode::SUCCESS),
        }
    })
}

/// Runs are asked for one by one: an edge that was started again under the same name is not meant.
async fn wait_until_gone(
    client: &Client,
    mut runs: Vec<EdgeDrain>,
    teller: &Teller,
    within: Duration,
) -> anyhow::Result<ExitCode> {
    let clock = Clock::system();
    let end = clock.now() + within;
    let mut is_answered = true;
    loop {
        let (mut left, was_answered) = (Vec::new(), std::mem::replace(&mut is_answered, true));
        for run in runs {
            match client.drain_edge(&teller.name, Some(run.edge)).await {
                Err(error) if error.is_unknown_edge() => teller.gone(run.edge)?,
                // A core that is away for a moment is no reason to give up.
                Err(error) if error.retry_after().is_some() => {
                    if std::mem::replace(&mut is_answered, false) && was_answered {
                        paint::hint(&format!(
                            "the core cannot tell how far the edge is ({error}); asking on"
                        ));
                    }
                    left.push(run);
                }
                Err(error) => return Err(error.into()),
                Ok(now) => {
                    let now = now.first().copied().unwrap_or(run);
                    if now != run {
                        teller.left(now)?;
                    }
                    left.push(now);
                }
            }
        }
        if left.is_empty() {
            return Ok(ExitCode::SUCCESS);
        }
        if clock.now() >= end {
            return Ok(still_there(if is_answered {
                "the edge is still there; it goes on to go"
            } else {
                "no core could tell at last whether the edge has gone; once it is told, it goes on to go"
            }));
        }
        clock.sleep(ASK_EVERY).await;
        runs = left;
    }
}

fn still_there(hint: &str) -> ExitCode {
    paint::hint(hint);
    ExitCode::from(presence_runtime::exit::TEMPORARY)
}

/// Says how far it is.
struct Teller {
    name: EdgeName,
    json: bool,
    /// Several run under that name: each line says of which it speaks.
    several: bool,
}

impl Teller {
    fn left(&self, run: EdgeDrain) -> std::io::Result<()> {
        let EdgeDrain { edge, sessions } = run;
        if self.json {
            let (name, run) = (self.name.as_str(), edge.to_string());
            return paint::json_line(
                &json!({ "edge": name, "run": run, "sessions": sessions, "gone": false }),
            );
        }
        let noun = if sessions == 1 { "session" } else { "sessions" };
        paint::line(&format!("{}: going, {sessions} {noun} left", self.run(edge)))
    }

    fn gone(&self, run: Incarnation) -> std::io::Result<()> {
        if self.json {
            let (name, run) = (self.name.as_str(), run.to_string());
            return paint::json_line(&json!({ "edge": name, "run": run, "sessions": 0, "gone": true }));
        }
        paint::line(&format!("{}: gone", self.run(run)))
    }

    fn run(&self, run: Incarnation) -> String {
        let name = paint::harmless(self.name.as_str());
        if self.several { format!("{name} ({run})") } else { name.to_string() }
    }
}
