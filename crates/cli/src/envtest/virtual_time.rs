//! Virtual time of a control plane: it passes as that of the machine, and can be advanced.
//!
//! # Theory
//!
//! The control plane has a thread and a runtime of its own, whose time is paused. Another thread
//! tells every few milliseconds how much time has passed; while that thread lives, the runtime does
//! not advance by itself when it is idle. An order advances the time further, in steps of at most
//! [`STEP`]: what a step wakes has its turn before the next one, so that what is due in an hour
//! comes after what is due in a minute, and controllers see each other's work in between.

use setpoint::object::time::{Clock, Timestamp};
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::task::yield_now;

/// How often the time of the machine is added: the resolution of timers.
const TICK: Duration = Duration::from_millis(5);
/// The most by which the time moves at once: less than any timeout of a request.
const STEP: Duration = Duration::from_secs(1);
/// How often the tasks of the control plane have a turn between two steps: several times what a
/// change needs from its write to the next controller's.
const TURNS: usize = 32;
/// The longest time of an order: a week, which takes some seconds. A longer one is several orders.
pub(super) const ADVANCE_MAX: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// Maximum number of orders that wait.
const ORDERS_MAX: usize = 16;
/// How many times as fast as on the machine time passes at most: no peer's timeout ends sooner by
/// the machine's time. A step takes more than 10 µs.
pub(super) const PACE: u32 = 100_000;

/// Advances a control plane's time.
#[derive(Debug, Clone)]
pub(super) struct Advancer(mpsc::Sender<Order>);

/// What a runtime with virtual time receives.
#[derive(Debug)]
pub(super) struct Orders(mpsc::Receiver<Order>);

#[derive(Debug)]
struct Order {
    by: Duration,
    reached: oneshot::Sender<Timestamp>,
}

/// An advancer, and the orders that it gives.
pub(super) fn advancer() -> (Advancer, Orders) {
    let (sender, orders) = mpsc::channel(ORDERS_MAX);
    (Advancer(sender), Orders(orders))
}

impl Advancer {
    /// Advances the time, by at most [`ADVANCE_MAX`]. Returns the time that is reached; `None`: the
    /// control plane has ended.
    pub(super) async fn advance(&self, by: Duration) -> Option<Timestamp> {
        let (reached, answer) = oneshot::channel();
        self.0.send(Order { by: by.min(ADVANCE_MAX), reached }).await.ok()?;
        answer.await.ok()
    }
}

/// Runs `work` with virtual time, on this thread, until it ends. The clock begins at the machine's
/// time.
///
/// # Errors
///
/// If the system refuses a runtime.
pub(super) fn run(orders: Orders, work: impl AsyncFnOnce(Clock)) -> io::Result<()> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build()?;
    runtime.block_on(async {
        let clock = Clock::wall();
        // Dropped at the end, which ends the thread.
        let (_alive, ended) = channel::<()>();
        let (sender, ticks) = mpsc::channel(1);
        let passing = tokio::task::spawn_blocking(move || pass(&sender, &ended));
        tokio::select! {
            biased;
            () = work(clock.clone()) => {}
            never = follow(&clock, ticks, orders) => match never {},
        }
        drop(passing);
    });
    Ok(())
}

/// Tells how much time of the machine has passed, until the other side has ended.
#[expect(clippy::disallowed_methods, reason = "virtual time follows that of the machine")]
fn pass(ticks: &mpsc::Sender<Duration>, ended: &Receiver<()>) {
    let mut sent = std::time::Instant::now();
    while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(TICK) {
        let now = std::time::Instant::now();
        // If the last one still waits, this one is sent with the next.
        if ticks.try_send(now - sent).is_ok() {
            sent = now;
        }
    }
}

/// Lets time pass as on the machine, and by orders.
async fn follow(
    clock: &Clock,
    mut ticks: mpsc::Receiver<Duration>,
    Orders(mut orders): Orders,
) -> std::convert::Infallible {
    loop {
        tokio::select! {
            biased;
            // Cancel safe: a dropped `recv` has taken nothing.
            Some(passed) = ticks.recv() => advance(passed).await,
            // Cancel safe: as above.
            Some(order) = orders.recv() => {
                advance(order.by).await;
                // Who has asked may have gone.
                _ = order.reached.send(clock.now());
            }
            else => std::future::pending().await,
        }
    }
}

async fn advance(by: Duration) {
    let mut left = by;
    while !left.is_zero() {
        let step = left.min(STEP);
        left -= step;
        tokio::time::advance(step).await;
        if by > STEP {
            for _ in 0..TURNS {
                yield_now().await;
            }
        }
    }
}
