//! EV-1 (c): how much may be written about one object.

use std::{sync::Arc, time::Duration};

use setpoint_object::time::Timestamp;

use super::{REMEMBERED_MAX, lru::Lru, reference::ObjectReference, told::EventType};

/// How many writes one source may make about one object and type at once. 25, as client-go.
const BURST: f64 = 25.0;
/// How long it takes until one more may be made. 300 s, as client-go.
const REFILL: Duration = Duration::from_secs(300);

/// Whose allowance it is.
pub(super) type Payer = (Arc<str>, EventType, Arc<ObjectReference>);

struct Tokens {
    tokens: f64,
    at: Timestamp,
}

/// The allowances of the sources that wrote last.
pub(super) struct Floods(Lru<Payer, Tokens>);

impl Floods {
    pub(super) fn new() -> Self {
        Self(Lru::new(REMEMBERED_MAX))
    }

    /// Takes the allowance for one write, if there is one.
    pub(super) fn admit(&mut self, payer: &Payer, now: Timestamp) -> bool {
        let flood = self.0.entry(payer, || Tokens { tokens: BURST, at: now });
        let refilled = now.since(flood.at).as_secs_f64() / REFILL.as_secs_f64();
        flood.tokens = (flood.tokens + refilled).min(BURST);
        flood.at = flood.at.max(now);
        if flood.tokens < 1.0 {
            return false;
        }
        flood.tokens -= 1.0;
        true
    }
}
