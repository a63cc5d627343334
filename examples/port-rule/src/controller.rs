//! The controller: sums the reports of nodes in the status of each rule.
//!
//! # Theory
//!
//! A pass reads one rule, the nodes that it selects and the reports that name it:
//!
//! | the rule | condition `Ready` | comes back |
//! |---|---|---|
//! | selects no node | `True NoNodes` | when a node, a report or the rule changes |
//! | every selected node has it | `True Applied` | the same |
//! | a node has refused it | `False Refused`, with the node and its reason | the same |
//! | a node's firewall failed | `False Failed`, with the node and its reason | the same |
//! | a node has not reported this generation | `False Waiting`, with nodes' names | the same |
//! | is being deleted, a report names it | `False Deleting`, with nodes' names | the same |
//! | is being deleted, no report names it | – (the finalizer goes) | – |
//!
//! The finalizer is added before an agent applies the rule. A report is owned by its Node, so a
//! deleted node does not delay the deletion of a rule. A node that is down does: its firewall may
//! still have the rule.

use crate::agent::selects;
use crate::api::{FINALIZER, NodeFirewall, PortRule, PortRuleStatus, READY, RuleReport, RuleState};
use k8s_openapi::api::core::v1::Node;
use setpoint::informer::Event;
use setpoint::kube_client::api::ListParams;
use setpoint::object::label::Selector;
use setpoint::prelude::*;
use setpoint::runtime::Timestamp;
use std::collections::BTreeMap;

/// The controller's name: in events, in `managedFields`, in logs, its Lease's.
pub const NAME: &str = "port-rule-controller";

/// The index of reports by the rules that they name.
const BY_RULE: &str = "rules";

/// Maximum number of nodes that a message names.
const NAMED_MAX: usize = 3;

/// The controller, to be added to a manager.
///
/// # Errors
///
/// None: these options are valid.
pub fn controller() -> Result<Controller, BuildError> {
    let reports = Watch::<NodeFirewall>::new().index(BY_RULE, |report: &NodeFirewall| {
        report.spec.rules.iter().map(|rule| rule.name.clone()).collect()
    });
    Controller::builder(NAME)
        .for_(Watch::<PortRule>::new().filter(Predicate::resource_version_changed()))
        .maps(reports, |report| match report.get() {
            Ok(report) => {
                report.spec.rules.iter().map(|rule| Request::cluster(&*rule.name)).collect()
            }
            Err(error) => {
                let report = report.key();
                tracing::warn!(%report, error = &error as &dyn std::error::Error, "read");
                Vec::new()
            }
        })
        .watches_with(Watch::<Node>::new().filter(Predicate::labels_changed()), |event, client| {
            // Before the first list of rules, their own events come.
            let rules = client.api::<PortRule>().list(None, &Selector::everything());
            let rules = rules.unwrap_or_default();
            let concerned = rules.iter().filter(|rule| concerns(event, rule));
            concerned.map(|rule| Request::cluster(rule.name_any())).collect()
        })
        // The definitions may come later than the controller.
        .sync_timeout(None)
        .build(reconcile)
}

/// Whether a rule selects a node before or after a change.
fn concerns(event: &Event<Node>, rule: &PortRule) -> bool {
    let is_selected = |node: &setpoint::informer::Object<Node>| {
        node.get().map_or(true, |node| selects(rule, node.labels()))
    };
    match event {
        Event::Updated { old, new } => is_selected(old) || is_selected(new),
        event => event.object().is_none_or(is_selected),
    }
}

async fn reconcile(request: Request, context: Context) -> Result<Action, BoxError> {
    let rules = context.client().api::<PortRule>();
    let Some(rule) = rules.get(&request)? else { return Ok(Action::await_change()) };
    let reports = context.client().api::<NodeFirewall>();
    let reports = reports.select().index(BY_RULE, &*request.name).all()?;
    let mut mine = Reports::of(&rule, reports.iter().map(|report| &**report));
    let is_deleting = rule.meta().deletion_timestamp.is_some();
    if is_deleting && mine.0.is_empty() {
        // The cache may be stale, so the live state decides.
        let live = context.client().api::<NodeFirewall>();
        let live = live.list_live(None, &ListParams::default()).await?;
        mine = Reports::of(&rule, &live);
    }
    if is_deleting && !mine.0.is_empty() {
        let summary = Summary::deleting(&mine);
        write_status(&rule, summary, &context).await?;
        return Ok(Action::await_change());
    }
    let pass = async |finalize| match finalize {
        Finalize::Apply(rule) => {
            let nodes = context.client().api::<Node>().list(None, &Selector::everything())?;
            let selected = nodes.iter().filter(|node| selects(&rule, node.labels()));
            let selected: Vec<String> = selected.map(|node| node.name_any()).collect();
            let summary = Summary::of(&selected, rule.meta().generation, &mine);
            write_status(&rule, summary, &context).await?;
            Ok::<_, BoxError>(Action::await_change())
        }
        // No report names it.
        Finalize::Cleanup(_) => Ok(Action::await_change()),
    };
    Ok(finalizer(&rules, FINALIZER, rule, pass).await?)
}

/// The reports about one rule, by node.
#[derive(Debug, Default)]
struct Reports(BTreeMap<String, RuleReport>);

impl Reports {
    fn of<'a>(rule: &PortRule, reports: impl IntoIterator<Item = &'a NodeFirewall>) -> Self {
        let uid = rule.uid().unwrap_or_default();
        let of_node = |report: &NodeFirewall| {
            let mine = report.spec.rules.iter().find(|report| report.uid == uid)?;
            Some((report.name_any(), mine.clone()))
        };
        Self(reports.into_iter().filter_map(of_node).collect())
    }
}

/// The content of a status.
#[derive(Debug, PartialEq, Eq)]
struct Summary {
    /// Nodes that are selected; `None` while the rule is being deleted.
    nodes: Option<usize>,
    applied: usize,
    is_ready: bool,
    reason: &'static str,
    message: String,
}

impl Summary {
    /// Sums the reports of the selected nodes. `selected` is in any order.
    fn of(selected: &[String], generation: Option<i64>, reports: &Reports) -> Self {
        let (mut applied, mut waiting) = (0, Vec::new());
        let (mut refused, mut failed) = (Vec::new(), Vec::new());
        for node in selected {
            let report = reports.0.get(node);
            match report.filter(|report| Some(report.generation) == generation) {
                Some(RuleReport { state: RuleState::Applied, .. }) => applied += 1,
                Some(RuleReport { state: RuleState::Refused, message, .. }) => {
                    refused.push(format!("{node}: {message}"));
                }
                Some(RuleReport { state: RuleState::Failed, message, .. }) => {
                    failed.push(format!("{node}: {message}"));
                }
                Some(RuleReport { state: RuleState::Pending, .. }) | None => {
                    waiting.push(node.clone());
                }
            }
        }
        let n_nodes = selected.len();
        let summary = |is_ready, reason, more: String| Self {
            nodes: Some(n_nodes),
            applied,
            is_ready,
            reason,
            message: format!("applied on {applied} of {n_nodes} nodes{more}"),
        };
        if !refused.is_empty() {
            return summary(false, "Refused", format!("; refused by {}", named(refused)));
        }
        if !failed.is_empty() {
            return summary(false, "Failed", format!("; failed on {}", named(failed)));
        }
        if !waiting.is_empty() {
            return summary(false, "Waiting", format!("; waiting for {}", named(waiting)));
        }
        summary(true, if n_nodes == 0 { "NoNodes" } else { "Applied" }, String::new())
    }

    /// The summary of a rule that is being deleted.
    fn deleting(reports: &Reports) -> Self {
        let nodes = named(reports.0.keys().cloned().collect());
        let message = format!("waiting until it is removed from {nodes}");
        let applied =
            reports.0.values().filter(|report| report.state == RuleState::Applied).count();
        Self { nodes: None, applied, is_ready: false, reason: "Deleting", message }
    }

    fn write(&self, status: &mut PortRuleStatus, generation: Option<i64>, now: Timestamp) {
        let count = |n: usize| i32::try_from(n).unwrap_or(i32::MAX);
        status.observed_generation = generation;
        if let Some(nodes) = self.nodes {
            status.nodes = count(nodes);
        }
        status.applied = count(self.applied);
        let (conditions, message) = (&mut status.conditions, &self.message);
        set_condition(conditions, READY, self.is_ready, self.reason, message, generation, now);
    }
}

/// The first of some texts, and how many more there are.
fn named(mut texts: Vec<String>) -> String {
    texts.sort();
    let n_more = texts.len().saturating_sub(NAMED_MAX);
    texts.truncate(NAMED_MAX);
    let first = texts.join(", ");
    if n_more == 0 { first } else { format!("{first} and {n_more} more") }
}

/// Writes the status if it has changed. Records an event when all nodes have the rule, or one
/// cannot have it.
async fn write_status(
    rule: &PortRule,
    summary: Summary,
    context: &Context,
) -> Result<(), BoxError> {
    let before = rule.status.clone().unwrap_or_default();
    let mut status = before.clone();
    summary.write(&mut status, rule.meta().generation, context.clock().now());
    if rule.status.as_ref() == Some(&status) {
        return Ok(());
    }
    let rules = context.client().api::<PortRule>();
    let written = PortRule { status: Some(status), ..rule.clone() };
    rules.status().merge(&MergeFrom::object(rule), &written).await?;
    let was = setpoint::runtime::condition::find_condition(&before.conditions, READY);
    if was.is_none_or(|was| was.reason != summary.reason) {
        let about = ObjectReference::of(rule);
        match summary.reason {
            "Refused" | "Failed" => {
                context.recorder().warning(&about, summary.reason, summary.message);
            }
            "Applied" => context.recorder().normal(&about, summary.reason, summary.message),
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(state: RuleState, generation: i64, message: &str) -> RuleReport {
        let (name, uid) = ("web".into(), "1".into());
        RuleReport { name, uid, generation, state, message: message.into() }
    }

    #[track_caller]
    fn check(reports: &[(&str, RuleReport)], expected: (bool, &str, &str)) {
        let reports = reports.iter().map(|(node, report)| ((*node).to_owned(), report.clone()));
        let selected = ["a", "b", "c", "d"].map(str::to_owned);
        let summary = Summary::of(&selected, Some(2), &Reports(reports.collect()));
        assert_eq!((summary.is_ready, summary.reason, &*summary.message), expected);
    }

    #[test]
    fn rule_is_ready_when_every_selected_node_has_this_generation() {
        let applied = || report(RuleState::Applied, 2, "");
        let all = [("a", applied()), ("b", applied()), ("c", applied()), ("d", applied())];
        check(&all, (true, "Applied", "applied on 4 of 4 nodes"));
        let waiting = "applied on 1 of 4 nodes; waiting for b, c, d";
        let old = report(RuleState::Applied, 1, "");
        check(&[("a", applied()), ("b", old), ("z", applied())], (false, "Waiting", waiting));
        let waiting = "applied on 0 of 4 nodes; waiting for a, b, c and 1 more";
        check(&[("d", report(RuleState::Pending, 2, ""))], (false, "Waiting", waiting));
    }

    #[test]
    fn refusal_is_named_before_a_failure_and_both_before_missing_reports() {
        let failed = report(RuleState::Failed, 2, "broken");
        let message = "applied on 0 of 4 nodes; failed on b: broken";
        check(&[("b", failed.clone())], (false, "Failed", message));
        let refused = report(RuleState::Refused, 2, "nftables has no zones");
        let message = "applied on 0 of 4 nodes; refused by a: nftables has no zones";
        check(&[("a", refused), ("b", failed)], (false, "Refused", message));
    }

    #[test]
    fn rule_without_nodes_is_ready() {
        let summary = Summary::of(&[], Some(1), &Reports::default());
        assert_eq!((summary.is_ready, summary.reason), (true, "NoNodes"));
    }
}
