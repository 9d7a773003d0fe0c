//! Sending an edge away.

use presence_model::id::{EdgeName, Incarnation};
use presence_proto::v1;
use presence_proto::v1::admin_service_client::AdminServiceClient;

use crate::client::Client;
use crate::error::ClientError;

/// One run of an edge that goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EdgeDrain {
    /// The run.
    pub edge: Incarnation,
    /// Sessions that it still holds, those in grace included.
    pub sessions: u64,
}

impl Client {
    /// Sends an edge away, as the signal to end does: one run of it, or all that are known under its name.
    /// Asked again for a run it says how far that is.
    ///
    /// # Errors
    /// [`ClientError`]; once it has gone one that [says so](ClientError::is_unknown_edge).
    pub async fn drain_edge(
        &self,
        name: &EdgeName,
        run: Option<Incarnation>,
    ) -> Result<Vec<EdgeDrain>, ClientError> {
        let request =
            v1::DrainEdgeRequest { edge: name.as_str().to_owned(), incarnation: run.map(|run| run.0) };
        let answer = self
            .ask(|channel| {
                let request = request.clone();
                async move { AdminServiceClient::new(channel).drain_edge(request).await }
            })
            .await?;
        let read =
            |run: v1::EdgeDrain| EdgeDrain { edge: Incarnation(run.incarnation), sessions: run.sessions };
        Ok(answer.runs.into_iter().map(read).collect())
    }
}
