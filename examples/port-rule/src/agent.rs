//! The agent of a node: applies the rules to the node's firewall, and repairs it.
//!
//! # Theory
//!
//! There is one key, the node. A pass computes the whole ruleset from the caches, compares it with
//! the firewall, replaces its part if they differ, and writes the report. A pass runs when a rule
//! that selects the node changes, when the labels of the node change, when the firewall may have
//! changed, and every [`CHECK_PERIOD`]. Manual changes are undone.
//!
//! | a rule | the firewall | the report |
//! |---|---|---|
//! | is valid and held by the controller's finalizer | has it | `Applied` |
//! | is invalid, or not supported by the firewall | does not have it | `Refused` |
//! | is being deleted, or selects other nodes | does not have it | none |
//! | any, and the firewall failed | unchanged | `Failed`, and older entries stay |
//!
//! The report names a rule before the firewall has it (`Pending`), and until the firewall no longer
//! has it. The controller keeps a deleted rule until no report names it. So a deleted rule is in no
//! firewall, wherever an agent stops. While no rule applies, the agent's part of the firewall does
//! not exist.

use crate::api::{FINALIZER, NodeFirewall, NodeFirewallSpec, PortRule, RuleReport, RuleState};
use crate::backend::{Backend, BackendError};
use crate::ruleset::{Rule, Ruleset};
use k8s_openapi::api::core::v1::Node;
use setpoint::informer::Event;
use setpoint::object::error::chain;
use setpoint::object::label::Selector;
use setpoint::prelude::*;
use setpoint::runtime::cache::{ByType, CacheConfig, CacheOptionsError};
use setpoint::runtime::finalizer::has_finalizer;
use setpoint::runtime::manager::AddError;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// The agent's name: in events, in `managedFields`, in logs.
pub const NAME: &str = "port-rule-agent";

/// Time between two checks of the firewall without an event: thirty seconds, which is common for
/// such agents.
pub const CHECK_PERIOD: Duration = Duration::from_secs(30);

/// An agent, for a manager with the [`cache`] of its node.
#[derive(Debug)]
pub struct Agent<B> {
    node: Request,
    backend: Arc<B>,
    check_period: Duration,
}

/// Why an agent could not be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AgentError {
    /// The controller's name or its sources.
    #[error("build the agent's controller")]
    Build(#[from] BuildError),
    /// The manager has an agent already, or too many members.
    #[error("add the agent to the manager")]
    Add(#[from] AddError),
}

/// Why a pass failed.
#[derive(Debug, thiserror::Error)]
enum PassError {
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error(transparent)]
    Backend(#[from] BackendError),
    #[error("refer to the node")]
    Owner(#[source] BoxError),
    #[error("the firewall does not list what it was given")]
    NotHeld,
}

/// The cache of the manager of a node's agent: all rules, and only its own node and report.
///
/// # Errors
///
/// None: these options are valid.
pub fn cache(node: &str) -> Result<CacheOptions, CacheOptionsError> {
    let own = ByType::new().config(CacheConfig::new().fields(format!("metadata.name={node}")));
    CacheOptions::new().of::<Node>(&(), own.clone())?.of::<NodeFirewall>(&(), own)
}

impl<B: Backend> Agent<B> {
    /// The agent of the node with this name.
    pub fn new(node: &str, backend: Arc<B>) -> Self {
        Self { node: Request::cluster(node), backend, check_period: CHECK_PERIOD }
    }

    /// Time between two checks of the firewall without an event. Default: [`CHECK_PERIOD`].
    #[must_use]
    pub fn check_period(mut self, period: Duration) -> Self {
        self.check_period = period;
        self
    }

    /// Adds the agent to a manager, with a task that watches the firewall.
    ///
    /// # Errors
    ///
    /// The manager refuses it.
    pub fn add_to(self, manager: &mut Manager) -> Result<(), AgentError> {
        // One queued notice is enough: a pass reads everything.
        let (notices, changed) = mpsc::channel(1);
        let (node, backend, period) = (self.node.clone(), self.backend.clone(), self.check_period);
        let of_node = node.clone();
        let here = move || vec![node.clone()];
        let (on_report, on_notice) = (here.clone(), here);
        let controller = Controller::builder(NAME)
            .for_(Watch::<Node>::new().filter(Predicate::labels_changed()))
            .watches_with(Watch::<PortRule>::new(), move |event, client| {
                let labels = client.api::<Node>().get(&of_node).ok().flatten();
                let labels = labels.map(|node| node.labels().clone());
                // The first pass reads all rules, so what comes before the node is not missed.
                let concerns = labels.is_some_and(|labels| concerns(event, &labels));
                concerns.then(|| of_node.clone()).into_iter().collect()
            })
            .maps(Watch::<NodeFirewall>::new(), move |_| on_report())
            .channel_of(changed, move |()| on_notice())
            // The definitions may come later than the agent.
            .sync_timeout(None)
            .build(self)?;
        manager.add(controller)?;
        let listen = Runnable::new(move |stop| async move {
            let listening = async {
                loop {
                    if let Err(error) = backend.notices(notices.clone()).await {
                        tracing::warn!(error = &error as &dyn std::error::Error, "listen");
                    }
                    tokio::time::sleep(period).await;
                }
            };
            // Cancel safe: what was noticed is in the channel.
            tokio::select! {
                () = stop.cancelled() => {}
                () = listening => {}
            }
            Ok(())
        });
        manager.add_runnable("firewall-notices", listen.needs_leader(false))?;
        Ok(())
    }

    async fn pass(&self, context: &Context) -> Result<Action, PassError> {
        let client = context.client();
        let Some(node) = client.api::<Node>().get(&self.node)? else {
            // A node that is gone may come back: its firewall stays as it is.
            return Ok(Action::await_change());
        };
        let rules = client.api::<PortRule>().list(None, &Selector::everything())?;
        let selected = rules.iter().filter(|rule| selects(rule, node.labels()));
        let plan = Plan::of(selected.map(|rule| &**rule), self.backend.as_ref());
        let api = client.api::<NodeFirewall>();
        let reported = api.get_own(&self.node).await?;
        let reported = reported.map(|report| report.spec.clone()).unwrap_or_default();
        let report = Report { agent: self, node: &node, context };

        if self.backend.holds(&plan.ruleset).await? {
            report.write(&reported, plan.reports).await?;
            return Ok(Action::requeue_after(self.check_period));
        }
        report.write(&reported, plan.announced(&reported.rules)).await?;
        if let Err(error) = self.replace(&plan.ruleset).await {
            let failed = plan.failed(&reported.rules, &chain(&error));
            report.write(&reported, failed).await?;
            return Err(error);
        }
        tracing::info!(node = %self.node, n_rules = plan.ruleset.rules().len(), "replaced");
        report.write(&reported, plan.reports).await?;
        Ok(Action::requeue_after(self.check_period))
    }

    async fn replace(&self, ruleset: &Ruleset) -> Result<(), PassError> {
        self.backend.replace(ruleset).await?;
        // Otherwise every pass would replace it again without a trace.
        match self.backend.holds(ruleset).await? {
            true => Ok(()),
            false => Err(PassError::NotHeld),
        }
    }
}

impl<B: Backend> Reconciler for Agent<B> {
    type Error = BoxError;

    async fn reconcile(&self, request: Request, context: Context) -> Result<Action, BoxError> {
        if request != self.node {
            return Ok(Action::await_change());
        }
        Ok(self.pass(&context).await?)
    }
}

/// Whether an event is about a rule that selects the node, or selected it before.
fn concerns(event: &Event<PortRule>, labels: &BTreeMap<String, String>) -> bool {
    let is_ours = |object: &setpoint::informer::Object<PortRule>| {
        // An object that does not decode is an error of the pass.
        object.get().map_or(true, |rule| selects(&rule, labels))
    };
    match event {
        Event::Updated { old, new } => is_ours(old) || is_ours(new),
        event => event.object().is_none_or(is_ours),
    }
}

/// Whether a rule selects a node with these labels.
pub fn selects(rule: &PortRule, labels: &BTreeMap<String, String>) -> bool {
    rule.spec.node_selector.iter().all(|(key, value)| labels.get(key) == Some(value))
}

/// The desired ruleset and report of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Plan {
    ruleset: Ruleset,
    /// By name; all `Applied` or `Refused`.
    reports: Vec<RuleReport>,
}

impl Plan {
    /// Makes the ruleset and the report from the rules that select the node, in any order.
    fn of<'a>(rules: impl Iterator<Item = &'a PortRule>, backend: &impl Backend) -> Self {
        let (mut applied, mut reports) = (Vec::new(), Vec::new());
        // A rule without the finalizer could be deleted while firewalls still have it.
        let applies = |rule: &&PortRule| {
            rule.meta().deletion_timestamp.is_none() && has_finalizer(*rule, FINALIZER)
        };
        for rule in rules.filter(applies) {
            let name = rule.name_any();
            let checked = Rule::of(&name, &rule.spec).map_err(|error| error.to_string());
            let checked = checked.and_then(|rule| {
                backend.check(&rule).map(|()| rule).map_err(|error| error.to_string())
            });
            let (state, message) = match checked {
                Ok(rule) => {
                    applied.push(rule);
                    (RuleState::Applied, String::new())
                }
                Err(message) => (RuleState::Refused, message),
            };
            let uid = rule.uid().unwrap_or_default();
            let generation = rule.meta().generation.unwrap_or_default();
            reports.push(RuleReport { name, uid, generation, state, message });
        }
        reports.sort_by(|a, b| a.name.cmp(&b.name));
        Self { ruleset: Ruleset::of(applied), reports }
    }

    /// The report before the firewall is changed: what may be in it before and after.
    fn announced(&self, reported: &[RuleReport]) -> Vec<RuleReport> {
        let known: BTreeSet<&str> = reported.iter().map(|report| &*report.uid).collect();
        let new = self.reports.iter().filter(|report| !known.contains(&*report.uid));
        let pending = |report: &RuleReport| match report.state {
            RuleState::Applied => RuleReport { state: RuleState::Pending, ..report.clone() },
            _ => report.clone(),
        };
        let mut all: Vec<RuleReport> = reported.iter().cloned().chain(new.map(pending)).collect();
        all.sort_by(|a, b| (&a.name, &a.uid).cmp(&(&b.name, &b.uid)));
        all
    }

    /// The report after the firewall failed.
    fn failed(&self, reported: &[RuleReport], why: &str) -> Vec<RuleReport> {
        let planned: BTreeMap<&str, &RuleReport> =
            self.reports.iter().map(|report| (&*report.uid, report)).collect();
        let mut all = self.announced(reported);
        for report in &mut all {
            match planned.get(&*report.uid) {
                Some(planned) if planned.state == RuleState::Applied => {
                    *report = RuleReport {
                        state: RuleState::Failed,
                        message: why.to_owned(),
                        ..(*planned).clone()
                    };
                }
                // May still be in the firewall.
                _ => {}
            }
        }
        all
    }
}

/// Writes the report of the node.
struct Report<'a, B> {
    agent: &'a Agent<B>,
    node: &'a Node,
    context: &'a Context,
}

impl<B: Backend> Report<'_, B> {
    /// Writes the report if it has changed. `reported` is the one before the pass.
    async fn write(
        &self,
        reported: &NodeFirewallSpec,
        rules: Vec<RuleReport>,
    ) -> Result<(), PassError> {
        let spec = NodeFirewallSpec { backend: self.agent.backend.name().to_owned(), rules };
        if spec == *reported {
            return Ok(());
        }
        let owner = setpoint::runtime::owner_reference(self.node, &())
            .map_err(|error| PassError::Owner(error.into()))?;
        let apply = Apply::<NodeFirewall>::new(&self.agent.node).owner(&owner).spec(&spec).force();
        self.context.client().api::<NodeFirewall>().apply(&apply).await?;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
