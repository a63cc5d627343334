//! The far end: decides and writes.

use std::sync::{Arc, atomic::Ordering};

use futures::{StreamExt, stream::FuturesUnordered};
use rand::{SeedableRng, rngs::SmallRng};
use tokio_util::sync::CancellationToken;

use super::{
    correlator::{Correlator, Write},
    loss::count,
    outbox::Outbox,
    recorder::{EventOptions, Heard},
    send::Sender,
    told::Told,
};
use crate::client::Client;

/// How many events are written at the same time. 8, as client-go's newer recorder: one that has to
/// be tried again holds up few others.
const WRITES_MAX: usize = 8;

/// Writes what recorders were told; owned by the manager.
pub(crate) struct EventWorker {
    // Helpers.
    client: Client,
    options: EventOptions,
    rng: SmallRng,

    // Inputs.
    heard: Heard,

    // State.
    correlator: Correlator,
    outbox: Outbox,
}

impl EventWorker {
    pub(crate) fn new(client: Client, heard: Heard, options: EventOptions, seed: u64) -> Self {
        let correlator = Correlator::new(options.api);
        let rng = SmallRng::seed_from_u64(seed);
        Self { client, options, rng, heard, correlator, outbox: Outbox::default() }
    }

    /// Writes until `stop`; then what was told before, and what series have left to say, each once
    /// and without patience.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        let sender = Arc::new(Sender {
            client: self.client.clone(),
            options: self.options.clone(),
            losses: self.heard.losses.clone(),
            stop: stop.clone(),
        });
        let mut writes = FuturesUnordered::new();
        let mut is_ending = false;
        loop {
            while writes.len() < WRITES_MAX
                && let Some(write) = self.outbox.next()
            {
                let rng = SmallRng::from_rng(&mut self.rng);
                writes.push(sender.clone().deliver(write, rng));
            }
            if is_ending && writes.is_empty() {
                return;
            }
            let clock = &self.heard.clock;
            let due = self.correlator.next_due().map(|due| due.since(clock.now()));
            tokio::select! {
                biased;
                // Cancel safe: what was not taken stays.
                Some(name) = writes.next() => self.outbox.done(&name),
                // Cancel safe: a dropped `recv` has taken nothing.
                Some(told) = self.heard.told.recv(), if !is_ending => self.take(*told),
                // Cancel safe: it only looks.
                () = stop.cancelled(), if !is_ending => {
                    is_ending = true;
                    self.end();
                }
                // Cancel safe: it only waits.
                () = tokio::time::sleep(due.unwrap_or_default()), if !is_ending && due.is_some() => {
                    let writes = self.correlator.due(self.heard.clock.now());
                    self.push(writes);
                }
                // No recorder is left, and nothing is being written or to be waited for.
                else => return,
            }
        }
    }

    fn take(&mut self, told: Told) {
        let writes = self.correlator.take(told);
        let n_held_back = self.correlator.take_held_back();
        self.heard.losses.held_back.fetch_add(n_held_back, Ordering::Relaxed);
        self.push(writes.into_iter().flatten());
    }

    /// Takes in what was told until now, and nothing after.
    fn end(&mut self) {
        self.heard.told.close();
        while let Ok(told) = self.heard.told.try_recv() {
            self.take(*told);
        }
        let writes = self.correlator.end(self.heard.clock.now());
        self.push(writes);
    }

    fn push(&mut self, writes: impl IntoIterator<Item = Write>) {
        for write in writes {
            if !self.outbox.push(write) {
                count(&self.heard.losses.queue_full);
            }
        }
    }
}
