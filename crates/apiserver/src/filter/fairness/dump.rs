//! The pages below `/debug/api_priority_and_fairness/`, for people who look for the cause of waits.

use super::config::Level;
use super::stats::Reason;
use super::{Fairness, Waiter};
use setpoint_object::time::Clock;
use std::fmt::Write as _;

/// The start of the paths.
const ROOT: &str = "/debug/api_priority_and_fairness/";
/// Maximum requests on a page. A page of as many has some megabytes.
const REQUESTS_MAX: usize = 20_000;
/// The least width of a column.
const CELL_MIN: usize = 8;
/// The start of a request that waits.
const NEVER: &str = "0001-01-01T00:00:00Z";

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
    /// A page as a table with commas. `with_details`: what requests are about, too.
    pub(crate) fn dump(&self, page: Page, clock: &Clock, with_details: bool) -> String {
        match page {
            Page::Levels => self.dump_levels(),
            Page::Queues => self.dump_queues(),
            Page::Requests => self.dump_requests(clock, with_details),
        }
    }

    fn dump_levels(&self) -> String {
        let mut table = Table::new(&[
            "PriorityLevelName",
            "ActiveQueues",
            "IsIdle",
            "IsQuiescing",
            "WaitingRequests",
            "ExecutingRequests",
            "DispatchedRequests",
            "RejectedRequests",
            "TimedoutRequests",
            "CancelledRequests",
        ]);
        let config = self.known_config();
        let state = self.0.state.lock();
        for level in by_name(&config.levels) {
            let of_level = || config.schemas.iter().filter(|s| s.level_name == level.name);
            let sum = |count: &dyn Fn(&super::Schema) -> u64| -> u64 {
                of_level().map(|schema| count(schema)).sum()
            };
            let figures = level.id.and_then(|id| state.scheduler.level(id));
            // An exempt level has neither queues nor a place in the scheduler.
            let (queues, waiting, executing) = match figures {
                Some(figures) => {
                    (figures.waiting_queues, figures.waiting, figures.executing as u64)
                }
                None => (0, 0, sum(&|schema| schema.stats.executing())),
            };
            let rejected = |reason| sum(&|schema| schema.stats.rejected(reason));
            table.row(vec![
                level.name.to_string(),
                queues.to_string(),
                (waiting == 0 && executing == 0).to_string(),
                // A deleted level has no row.
                false.to_string(),
                waiting.to_string(),
                executing.to_string(),
                sum(&|schema| schema.stats.dispatched()).to_string(),
                Reason::ALL.into_iter().map(rejected).sum::<u64>().to_string(),
                rejected(Reason::TimeOut).to_string(),
                rejected(Reason::Cancelled).to_string(),
            ]);
        }
        table.print()
    }

    fn dump_queues(&self) -> String {
        let mut table = Table::new(&[
            "PriorityLevelName",
            "Index",
            "PendingRequests",
            "ExecutingRequests",
            "SeatsInUse",
            "NextDispatchR",
            "InitialSeatsSum",
            "MaxSeatsSum",
            "TotalWorkSum",
        ]);
        let config = self.known_config();
        let state = self.0.state.lock();
        for level in by_name(&config.levels) {
            let queues = level.id.map(|id| state.scheduler.queues(id));
            for queue in queues.into_iter().flatten() {
                let seats: u64 = queue.waiting.iter().map(|(_, width)| u64::from(*width)).sum();
                let work = seats as f64 * super::scheduler::ESTIMATE.as_secs_f64();
                table.row(vec![
                    level.name.to_string(),
                    queue.index.to_string(),
                    queue.waiting.len().to_string(),
                    queue.executing.to_string(),
                    queue.in_use.to_string(),
                    format!("{:.8}ss", queue.start),
                    seats.to_string(),
                    seats.to_string(),
                    format!("{work:.8}ss"),
                ]);
            }
        }
        table.print()
    }

    fn dump_requests(&self, clock: &Clock, with_details: bool) -> String {
        let mut columns = vec![
            "PriorityLevelName",
            "FlowSchemaName",
            "QueueIndex",
            "RequestIndexInQueue",
            "FlowDistingsher",
            "ArriveTime",
            "InitialSeats",
            "FinalSeats",
            "AdditionalLatency",
            "StartTime",
        ];
        if with_details {
            columns.extend(["UserName", "Verb", "APIPath", "Namespace", "Name", "APIVersion"]);
            columns.extend(["Resource", "SubResource"]);
        }
        let mut table = Table::new(&columns);
        let (config, now) = (self.known_config(), clock.now());
        let state = self.0.state.lock();
        for level in by_name(&config.levels) {
            let queues = level.id.map(|id| state.scheduler.queues(id));
            for queue in queues.into_iter().flatten() {
                for (n, (ticket, width)) in queue.waiting.iter().enumerate() {
                    let Some(waiter) = state.waiting.get(ticket) else { continue };
                    let Waiter { schema, arrived, about, .. } = waiter;
                    if table.rows.len() > REQUESTS_MAX {
                        return table.print();
                    }
                    let mut at = now;
                    at.0 = at.0.saturating_sub(arrived.elapsed());
                    let mut row = vec![
                        level.name.to_string(),
                        schema.name.to_string(),
                        queue.index.to_string(),
                        n.to_string(),
                        about.distinguisher.clone(),
                        at.rfc3339_micro(),
                        width.to_string(),
                        "0".to_owned(),
                        "0s".to_owned(),
                        NEVER.to_owned(),
                    ];
                    if with_details {
                        row.extend([
                            about.user.to_string(),
                            about.verb.as_str().to_owned(),
                            about.path.clone(),
                            about.namespace.clone(),
                            about.name.clone(),
                            about.version.clone(),
                            about.resource.clone(),
                            about.subresource.clone(),
                        ]);
                    }
                    table.row(row);
                }
            }
        }
        table.print()
    }
}

fn by_name(levels: &[Level]) -> Vec<&Level> {
    let mut levels: Vec<&Level> = levels.iter().collect();
    levels.sort_by(|a, b| a.name.cmp(&b.name));
    levels
}

/// Rows whose cells end with commas, in columns as wide as their widest cells.
struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    fn new(columns: &[&str]) -> Self {
        Self { rows: vec![columns.iter().map(|&name| name.to_owned()).collect()] }
    }

    fn row(&mut self, row: Vec<String>) {
        self.rows.push(row);
    }

    fn print(&self) -> String {
        let mut widths = Vec::new();
        for row in &self.rows {
            widths.resize(widths.len().max(row.len()), CELL_MIN);
            for (width, cell) in widths.iter_mut().zip(row) {
                // With its comma and a space.
                *width = (*width).max(cell.chars().count() + 2);
            }
        }
        let mut page = String::new();
        for row in &self.rows {
            for (idx, (cell, width)) in row.iter().zip(&widths).enumerate() {
                // Writing to a text cannot fail.
                _ = match idx + 1 == row.len() {
                    true => writeln!(page, "{cell}"),
                    false => write!(page, "{:width$}", format!("{cell},")),
                };
            }
        }
        page
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_aligned_except_of_the_last_column() {
        let mut table = Table::new(&["PriorityLevelName", "Index", "Work"]);
        table.row(vec!["ü".to_owned(), "12345678".to_owned(), "3".to_owned()]);
        let lines = ["PriorityLevelName, Index,    Work", "ü,                 12345678, 3", ""];
        assert_eq!(table.print(), lines.join("\n"));
        let table = Table::new(&["a", "b"]);
        assert_eq!(table.print(), "a,      b\n");
    }
}
