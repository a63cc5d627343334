//! Ends of containers, and what follows from them.

use super::{Live, Worker};
use crate::container::{Ended, Stop};
use crate::status::{List, State};
use setpoint_nodes::restart::{backoff, show};
use setpoint_runtime::Request;
use std::time::Duration;
use tokio::time::Instant;

/// Why a container waits that was removed to start again with all others.
const RESTARTING_ALL: &str = "RestartingAllContainers";
const REMOVED: &str = "The container is removed because RestartAllContainers in place";

impl Worker {
    /// Takes in the end of a container.
    pub(super) fn take_end(&mut self, name: &str, ended: Ended) {
        let Some(tracked) = self.containers.iter_mut().find(|one| one.container.name == name)
        else {
            return;
        };
        (tracked.is_started, tracked.is_ready, tracked.is_live) = (false, false, false);
        tracked.state = State::Ended(ended.clone());
        let live = self.live.entry(name.to_owned()).or_default();
        live.stop = None;
        let again = std::mem::take(&mut live.is_replaced);
        let code = ended.code.into();
        let (restarts, n_restarts) = (tracked.policy.restarts(code), tracked.n_restarts);
        let asks_for_all = !again && tracked.policy.restarts_all(code);
        let restarts_all = match self.is_restarting_all {
            true => !self.is_ending(),
            false => asks_for_all && !self.is_closing(),
        };
        if restarts_all {
            self.restart_all();
            return;
        }
        if !again && !restarts {
            return;
        }
        let ran = ended.started_at.map_or(Duration::ZERO, |at| ended.finished_at.since(at));
        let delay = if again { Duration::ZERO } else { backoff(n_restarts.into(), ran) };
        self.live.entry(name.to_owned()).or_default().due = Some(Instant::now() + delay);
        if self.is_closing() {
            self.start_nothing();
        } else if !delay.is_zero() {
            self.back_off(&ended, name, delay);
        }
    }

    /// Removes all containers that have ended, so that they start again as in a new pod once the
    /// others have ended too. Ephemeral containers stay.
    fn restart_all(&mut self) {
        let finished_at = self.parts.clock.now();
        for tracked in &mut self.containers {
            let is_waiting = matches!(tracked.state, State::Waiting { .. });
            if tracked.list == List::Ephemeral || tracked.is_live || is_waiting {
                continue;
            }
            tracked.last = Some(Ended {
                code: 137,
                reason: RESTARTING_ALL,
                message: REMOVED.to_owned(),
                started_at: None,
                finished_at,
            });
            let (reason, message) = (RESTARTING_ALL.to_owned(), REMOVED.to_owned());
            tracked.state = State::Waiting { reason, message };
            self.live.insert(tracked.container.name.clone(), Live::default());
        }
        let mut lasting = self.containers.iter().filter(|one| one.list != List::Ephemeral);
        self.is_restarting_all = lasting.any(|one| one.is_live);
    }

    /// Stops the containers that are to start again with all others.
    pub(super) fn stop_to_restart(&mut self, grace: Duration) {
        let lasting = self.containers.iter().filter(|one| one.list != List::Ephemeral);
        let names: Vec<String> = lasting.map(|one| one.container.name.clone()).collect();
        self.stop_these(names, grace);
    }

    /// Marks a container that waits to start again.
    fn back_off(&mut self, ended: &Ended, container: &str, delay: Duration) {
        let Request { namespace, name } = &self.parts.key;
        let pod = format!("{name}_{namespace}({})", self.uid);
        let Some(tracked) = self.containers.iter_mut().find(|one| one.container.name == container)
        else {
            return;
        };
        let message =
            format!("back-off {} restarting failed container={container} pod={pod}", show(delay));
        let path = format!("spec.{}{{{container}}}", tracked.list.of_spec());
        tracked.last = Some(ended.clone());
        tracked.state = State::Waiting { reason: "CrashLoopBackOff".to_owned(), message };
        let text = format!("Back-off restarting failed container {container} in pod {pod}");
        self.event(true, "BackOff", text, path);
    }

    /// Stops the containers: sidecars after the others, the last sidecar first. The grace period is
    /// that of all of them together.
    pub(super) fn stop_in_order(&mut self, grace: Duration) {
        self.start_nothing();
        let soonest = Instant::now() + grace;
        let (_, deadline) = match self.ending {
            Some((known, at)) if known <= grace => (known, at),
            Some((_, at)) => *self.ending.insert((grace, at.min(soonest))),
            None => *self.ending.insert((grace, soonest)),
        };
        let mut is_turn = true;
        let (sidecars, others): (Vec<_>, Vec<_>) =
            self.containers.iter().partition(|one| one.list == List::Sidecar);
        let mut stops = Vec::new();
        for one in others {
            stops.push((one.container.name.clone(), Stop { deadline, is_turn: true }));
            is_turn &= !one.is_live;
        }
        for one in sidecars.into_iter().rev() {
            stops.push((one.container.name.clone(), Stop { deadline, is_turn }));
            is_turn &= !one.is_live;
        }
        for (name, how) in stops {
            self.stop(&name, how);
        }
    }

    pub(super) fn stop_all(&mut self, grace: Duration) {
        let names = self.live.keys().cloned().collect();
        self.stop_these(names, grace);
    }

    fn stop_these(&mut self, names: Vec<String>, grace: Duration) {
        let how = Stop { deadline: Instant::now() + grace, is_turn: true };
        for name in names {
            self.stop(&name, how);
        }
    }

    fn stop(&mut self, name: &str, how: Stop) {
        let Some(live) = self.live.get_mut(name) else { return };
        live.due = None;
        let Some(stop) = &live.stop else { return };
        let before = *stop.borrow();
        let how = before.map_or(how, |before| Stop {
            deadline: before.deadline.min(how.deadline),
            is_turn: before.is_turn || how.is_turn,
        });
        if before == Some(how) {
            return;
        }
        stop.send_replace(Some(how));
        if before.is_none() {
            let of = self.containers.iter().find(|one| one.container.name == name);
            let list = of.map_or(List::Main, |one| one.list).of_spec();
            let message = format!("Stopping container {name}");
            self.event(false, "Killing", message, format!("spec.{list}{{{name}}}"));
        }
    }
}
