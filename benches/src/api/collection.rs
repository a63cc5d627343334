//! The end of a large collection: one request that deletes all its objects.

use super::client::{Ask, Endpoint};
use super::payload::{CONFIG_MAPS, config_map};
use super::{Figures, Goal, Unit};
use bytes::Bytes;
use futures::future::try_join_all;

/// Objects in the collection.
const OBJECTS: u64 = 50_000;
/// Connections that create them.
const FILLERS: u64 = 16;
/// After this time the server answers 504, in milliseconds.
const TIME_OUT: f64 = 60_000.0;

/// Fills the collection of ConfigMaps and deletes it.
pub(super) fn measure(endpoint: &Endpoint, figures: &mut Figures, how: &str) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let fillers = (0..FILLERS).map(async |filler| {
            let mut connection = endpoint.connect().await?;
            for n in (filler..OBJECTS).step_by(FILLERS as usize) {
                let body = config_map(&format!("of-many-{n}"), n);
                connection.send(Ask::write("POST", CONFIG_MAPS), body).await?.ok()?;
            }
            anyhow::Ok(())
        });
        try_join_all(fillers).await?;
        let mut connection = endpoint.connect().await?;
        let path = format!("{CONFIG_MAPS}?timeout=60s");
        let answer = connection.send(Ask::write("DELETE", &path), Bytes::new()).await?.ok()?;
        let name = format!("deletecollection of {OBJECTS} ConfigMaps (1 KiB){how}");
        let took = answer.whole.as_secs_f64() * 1e3;
        figures.add(&name, Unit::Millis, Goal::Most(TIME_OUT), took);
        Ok(())
    })
}
