//! All that a server holds, to be put into another: a replica that was cut off at that point.

use anyhow::Context as _;

use super::Server;

/// All keys of a server at one point.
#[derive(Debug, Clone, Default)]
pub struct Copy {
    /// Name, value as the server dumps it, and what is left of its life in milliseconds (0: no end).
    keys: Vec<(Vec<u8>, Vec<u8>, i64)>,
}

impl Copy {
    /// What this server holds.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn of(server: &Server) -> anyhow::Result<Self> {
        let mut connection = server.connection().await?;
        let names: Vec<Vec<u8>> = redis::cmd("KEYS").arg("*").query_async(&mut connection).await?;
        let mut pipeline = redis::pipe();
        for name in &names {
            pipeline.cmd("DUMP").arg(name).cmd("PTTL").arg(name);
        }
        let values: Vec<(Option<Vec<u8>>, i64)> = if names.is_empty() {
            Vec::new()
        } else {
            let answers: Vec<redis::Value> = pipeline.query_async(&mut connection).await?;
            let pairs =
                answers.chunks(2).map(|pair| redis::from_redis_value(redis::Value::Array(pair.to_vec())));
            pairs.collect::<Result<_, _>>()?
        };
        // A key that ended between the two questions is not there.
        let keys =
            names.into_iter().zip(values).filter_map(|(name, (value, left))| Some((name, value?, left)));
        Ok(Self { keys: keys.map(|(name, value, left)| (name, value, left.max(0))).collect() })
    }

    /// Makes it all that a server holds. A replica takes it, too.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn put_into(&self, server: &Server) -> anyhow::Result<()> {
        let mut connection = server.connection().await?;
        let mut pipeline = redis::pipe();
        pipeline.cmd("CONFIG").arg("SET").arg("replica-read-only").arg("no");
        pipeline.cmd("FLUSHALL");
        for (name, value, left) in &self.keys {
            pipeline.cmd("RESTORE").arg(name).arg(left).arg(value);
        }
        pipeline.cmd("CONFIG").arg("SET").arg("replica-read-only").arg("yes");
        pipeline.exec_async(&mut connection).await.context("the copy was refused")
    }
}
