//! The faults between a process and the server, and their probabilities.

use http::StatusCode;
use rand::Rng;
use rand::rngs::SmallRng;
use std::time::Duration;

/// Maximum number of frames of a broken watch before it breaks.
const FRAMES_MAX: u32 = 4;

/// Probability of faults, and latency of packets.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Faults {
    /// Probability that a request meets a fault, from 0.0 to 1.0; three times as high for a watch.
    pub chance: f64,
    /// Maximum latency of a packet. The minimum is 1 ms.
    pub latency_max: Duration,
    /// Maximum time between a request's pass through the client's layers and the moment the
    /// connection takes its body.
    pub connection_busy_max: Duration,
}

impl Default for Faults {
    /// No faults, and a latency of 1 ms.
    fn default() -> Self {
        let at_once = Duration::from_millis(1);
        Self { chance: 0.0, latency_max: at_once, connection_busy_max: Duration::ZERO }
    }
}

impl Faults {
    /// All faults, and latencies of up to 20 ms.
    pub(crate) fn stormy(chance: f64) -> Self {
        Self {
            chance,
            latency_max: Duration::from_millis(20),
            connection_busy_max: Duration::from_millis(3),
        }
    }

    /// The latency of one packet.
    pub(super) fn latency(&self, rng: &mut SmallRng) -> Duration {
        let max = u64::try_from(self.latency_max.as_millis()).unwrap().max(1);
        // Most packets are fast.
        let max = if rng.random_bool(0.8) { max.min(3) } else { max };
        Duration::from_millis(rng.random_range(1..=max))
    }

    /// How long a request waits for its connection.
    pub(super) fn connection(&self, rng: &mut SmallRng) -> Duration {
        let max = u64::try_from(self.connection_busy_max.as_millis()).unwrap();
        Duration::from_millis(rng.random_range(0..=max))
    }

    /// Draws the fate of a request.
    pub(super) fn fate(
        &self,
        rng: &mut SmallRng,
        is_write: bool,
        is_watch: bool,
        can_conflict: bool,
    ) -> Fate {
        let chance = if is_watch { self.chance * 3.0 } else { self.chance };
        let (is_met, what, n) = (
            rng.random_bool(chance.min(1.0)),
            rng.random_range(0..9),
            rng.random_range(0..FRAMES_MAX),
        );
        if !is_met {
            return Fate::Pass;
        }
        match what {
            0 if n < 2 => Fate::Refuse(StatusCode::INTERNAL_SERVER_ERROR, "InternalError"),
            0 => Fate::Refuse(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable"),
            1 => Fate::Refuse(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests"),
            2 => Fate::Unreachable,
            3 if is_watch => Fate::Ends(n),
            4 if is_watch => Fate::Breaks(n),
            5 if is_watch => Fate::Expires(n),
            6 | 7 if is_watch => Fate::Lags(Duration::from_millis(700) * (n + 1)),
            3 => Fate::RequestLost,
            4 => Fate::AnswerNever,
            5 => Fate::Slow(Duration::from_millis(300) * (n + 1)),
            6 | 7 if is_write && can_conflict => Fate::Refuse(StatusCode::CONFLICT, "Conflict"),
            _ => Fate::AnswerLost,
        }
    }
}

/// The fate of a request.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Fate {
    Pass,
    /// Refused on its way, and never carried out.
    Refuse(StatusCode, &'static str),
    /// Does not reach the server, and the client gets an error.
    Unreachable,
    /// Does not reach the server; the client gets an error much later.
    RequestLost,
    /// Carried out; the client gets an error much later.
    AnswerNever,
    /// Carried out, but the connection breaks before the response.
    AnswerLost,
    /// Arrives with this delay.
    Slow(Duration),
    /// The watch ends gracefully after this many frames.
    Ends(u32),
    /// The watch breaks after this many frames.
    Breaks(u32),
    /// The watch expires after this many frames.
    Expires(u32),
    /// Each frame arrives with this delay, so caches are stale.
    Lags(Duration),
}

impl Fate {
    /// Its name in the tally.
    pub(super) fn name(self, is_write: bool) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Refuse(StatusCode::CONFLICT, _) => "injected conflict",
            Self::Refuse(StatusCode::TOO_MANY_REQUESTS, _) => "too many requests",
            Self::Refuse(StatusCode::SERVICE_UNAVAILABLE, _) => "service unavailable",
            Self::Refuse(..) => "internal error",
            Self::Unreachable => "unreachable",
            Self::RequestLost => "request lost",
            Self::AnswerNever if is_write => "write never answered",
            Self::AnswerNever => "read never answered",
            Self::AnswerLost if is_write => "answer to a write lost",
            Self::AnswerLost => "answer to a read lost",
            Self::Slow(_) => "slow",
            Self::Ends(_) => "watch ends",
            Self::Breaks(_) => "watch breaks",
            Self::Expires(_) => "watch expires",
            Self::Lags(_) => "watch lags",
        }
    }
}
