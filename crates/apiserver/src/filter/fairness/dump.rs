//! The pages below `/debug/api_priority_and_fairness/`, for people who look for the cause of waits.

use super::stats::Reason;
use super::{Fairness, Waiter};
use setpoint_object::time::Clock;
use std::fmt::Write as _;

/// The start of the paths.
const ROOT: &str = "/debug/api_priority_and_fairness/";
/// Maximum requests on a page. A page of as many has some megabytes.
const REQUESTS_MAX: usize = 20_000;

/// One of the pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Page {
    Levels,
    Queues,
    Requests,
}

impl Page {
    /// The page of a path.
    pub(crate) fn of(path: &str) -> Option<Self> {
        match path.strip_prefix(ROOT)? {
            "dump_priority_levels" => Some(Self::Levels),
            "dump_queues" => Some(Self::Queues),
            "dump_requests" => Some(Self::Requests),
            _ => None,
        }
    }
}

impl Fairness {
    /// A page as comma separated values. `with_details`: what requests are about, too.
    pub(crate) fn dump(&self, page: Page, clock: &Clock, with_details: bool) -> String {
        match page {
            Page::Levels => self.dump_levels(),
            Page::Queues => self.dump_queues(),
            Page::Requests => self.dump_requests(clock, with_details),
        }
    }

    fn dump_levels(&self) -> String {
        let mut page = "PriorityLevelName, ActiveQueues, IsIdle, IsQuiescing, WaitingRequests, ExecutingRequests, DispatchedRequests, RejectedRequests, TimedoutRequests, CancelledRequests\n".to_owned();
        let config = self.known_config();
        let state = self.0.state.lock();
        for level in &config.levels {
            let of_level = || config.schemas.iter().filter(|s| s.level_name == level.name);
            let sum = |count: &dyn Fn(&super::Schema) -> u64| -> u64 {
                of_level().map(|schema| count(schema)).sum()
            };
            let dispatched = sum(&|schema| schema.stats.read("", "").dispatched);
            let rejected = |reason| sum(&|schema| schema.stats.rejected(reason));
            let (queues, idle, waiting, executing) =
                match level.id.and_then(|id| state.scheduler.level(id)) {
                    None => {
                        let none = || "<none>".to_owned();
                        (none(), none(), none(), none())
                    }
                    Some(figures) => (
                        figures.active_queues.to_string(),
                        (figures.executing + figures.waiting == 0).to_string(),
                        figures.waiting.to_string(),
                        figures.executing.to_string(),
                    ),
                };
            let quiescing = if level.id.is_some() { "false" } else { "<none>" };
            let refused = rejected(Reason::ConcurrencyLimit) + rejected(Reason::QueueFull);
            let (late, gone) = (rejected(Reason::TimeOut), rejected(Reason::Cancelled));
            // Writing to a text cannot fail.
            _ = writeln!(
                page,
                "{}, {queues}, {idle}, {quiescing}, {waiting}, {executing}, {dispatched}, {refused}, {late}, {gone}",
                level.name
            );
        }
        page
    }

    fn dump_queues(&self) -> String {
        let mut page = "PriorityLevelName, Index, PendingRequests, ExecutingRequests, SeatsInUse, NextDispatchR, InitialSeatsSum, MaxSeatsSum, TotalWorkSum\n".to_owned();
        let config = self.known_config();
        let state = self.0.state.lock();
        for level in &config.levels {
            let queues = level.id.map(|id| state.scheduler.queues(id));
            for queue in queues.into_iter().flatten() {
                let seats: u64 = queue.waiting.iter().map(|(_, width)| u64::from(*width)).sum();
                _ = writeln!(
                    page,
                    "{}, {}, {}, {}, {}, {:.8}ss, {seats}, {seats}, {:.8}ss",
                    level.name,
                    queue.index,
                    queue.waiting.len(),
                    queue.executing,
                    queue.in_use,
                    queue.start,
                    seats as f64 * super::scheduler::ESTIMATE.as_secs_f64(),
                );
            }
        }
        page
    }

    fn dump_requests(&self, clock: &Clock, with_details: bool) -> String {
        let mut page = "PriorityLevelName, FlowSchemaName, QueueIndex, RequestIndexInQueue, FlowDistingsher, ArriveTime, InitialSeats, FinalSeats, AdditionalLatency, StartTime".to_owned();
        if with_details {
            page += ", UserName, Verb, APIPath, Namespace, Name, APIVersion, Resource, SubResource";
        }
        page.push('\n');
        let (config, now) = (self.known_config(), clock.now());
        let state = self.0.state.lock();
        let mut n_rows = 0;
        for level in &config.levels {
            let queues = level.id.map(|id| state.scheduler.queues(id));
            for queue in queues.into_iter().flatten() {
                for (n, (ticket, width)) in queue.waiting.iter().enumerate() {
                    let Some(waiter) = state.waiting.get(ticket) else { continue };
                    let Waiter { schema, arrived, about, .. } = waiter;
                    if n_rows == REQUESTS_MAX {
                        return page;
                    }
                    n_rows += 1;
                    let mut at = now;
                    at.0 = at.0.saturating_sub(arrived.elapsed());
                    _ = write!(
                        page,
                        "{}, {}, {}, {n}, {}, {}, {width}, 0, 0s, <none>",
                        level.name,
                        schema.name,
                        queue.index,
                        about.distinguisher,
                        at.rfc3339_micro(),
                    );
                    if with_details {
                        _ = write!(
                            page,
                            ", {}, {}, {}, {}, {}, {}, {}, {}",
                            about.user,
                            about.verb,
                            about.path,
                            about.namespace,
                            about.name,
                            about.version,
                            about.resource,
                            about.subresource,
                        );
                    }
                    page.push('\n');
                }
            }
        }
        page
    }
}
