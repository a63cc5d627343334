//! firewalld, by its D-Bus interface and the program `busctl`.
//!
//! # Theory
//!
//! Our part is the rich rules of one priority, in the runtime configuration of all zones. The
//! priority identifies our rules, so no other program may use it. Missing rules are added before
//! others are removed: a change leaves no gap, but is not one transaction. firewalld loses the
//! runtime configuration when it reloads or restarts, and the agent restores it. Nothing is written
//! to the permanent configuration.
//!
//! firewalld accepts packets of open connections and of the loopback interface before it evaluates
//! rules. Rich rules apply to connections to the node.

use super::{Backend, BackendError, Program, Unsupported};
use crate::api::{Direction, Verdict};
use crate::ruleset::{Rule, Ruleset};
use futures::future::{BoxFuture, FutureExt};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

const SERVICE: &str = "org.fedoraproject.FirewallD1";
const PATH: &str = "/org/fedoraproject/FirewallD1";
const ZONES: &str = "org.fedoraproject.FirewallD1.zone";

/// The priority of our rules that allow, which come first. firewalld's range is ±32768, and 0 is
/// where rules without a priority are.
const PRIORITY_ALLOW: i16 = -14218;
/// The priority of our other rules.
const PRIORITY_OTHERS: i16 = -14217;

/// Rich rules by zone.
type Zones = BTreeMap<String, BTreeSet<String>>;

/// firewalld.
#[derive(Debug)]
pub struct Firewalld {
    busctl: Program,
}

impl Firewalld {
    /// The back end's name.
    pub const NAME: &str = "firewalld";

    /// Uses this program as `busctl`, on the system's bus. firewalld trusts root.
    pub fn new(busctl: Program) -> Self {
        Self { busctl }
    }

    /// Calls a method whose arguments are of one signature, and returns the first value of its
    /// answer.
    async fn call(
        &self,
        what: &'static str,
        interface: &str,
        method: &str,
        arguments: &[&str],
    ) -> Result<Value, BackendError> {
        // A query does not start firewalld through D-Bus.
        let mut all = vec!["--system", "--auto-start=no", "--json=short", "call", "--"];
        all.extend([SERVICE, PATH, interface, method]);
        all.extend(arguments);
        let answer = self.busctl.run(&all, b"").await;
        let answer = answer.map_err(|source| BackendError::Program { what, source })?;
        if answer.is_empty() {
            return Ok(Value::Null);
        }
        let answer: Value = serde_json::from_slice(&answer)
            .map_err(|source| BackendError::Output { what, source: Some(source) })?;
        Ok(answer["data"][0].clone())
    }

    async fn texts(
        &self,
        what: &'static str,
        method: &str,
        arguments: &[&str],
    ) -> Result<Vec<String>, BackendError> {
        let answer = self.call(what, ZONES, method, arguments).await?;
        serde_json::from_value(answer)
            .map_err(|source| BackendError::Output { what, source: Some(source) })
    }

    /// Our rules in each zone that has some.
    async fn present(&self) -> Result<Zones, BackendError> {
        let mut zones = Zones::new();
        for zone in self.texts("list the zones of firewalld", "getZones", &[]).await? {
            let what = "list the rules of firewalld";
            let rules = self.texts(what, "getRichRules", &["s", &zone]).await?;
            let ours: BTreeSet<String> = rules.into_iter().filter(|rule| is_ours(rule)).collect();
            if !ours.is_empty() {
                zones.insert(zone, ours);
            }
        }
        Ok(zones)
    }

    /// The rules that should be in each zone.
    async fn desired(&self, ruleset: &Ruleset) -> Result<Zones, BackendError> {
        let what = "ask for the default zone of firewalld";
        let default = self.call(what, SERVICE, "getDefaultZone", &[]).await?;
        let default = default.as_str().ok_or(BackendError::Output { what, source: None })?;
        Ok(rich_rules(ruleset, default))
    }
}

impl Backend for Firewalld {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn check(&self, rule: &Rule) -> Result<(), Unsupported> {
        match rule.direction {
            Direction::In => Ok(()),
            Direction::Out => {
                Err(Unsupported { backend: Self::NAME, what: "rules about what the node asks" })
            }
        }
    }

    fn holds<'a>(&'a self, ruleset: &'a Ruleset) -> BoxFuture<'a, Result<bool, BackendError>> {
        async move { Ok(self.present().await? == self.desired(ruleset).await?) }.boxed()
    }

    fn replace<'a>(&'a self, ruleset: &'a Ruleset) -> BoxFuture<'a, Result<(), BackendError>> {
        async move {
            let (present, desired) = (self.present().await?, self.desired(ruleset).await?);
            let mut failed = None;
            // A zone that does not exist must not keep other rules from their zones.
            let mut note = |done: Result<Value, BackendError>| {
                if let Err(error) = done {
                    failed.get_or_insert(error);
                }
            };
            for (zone, rule) in missing(&desired, &present) {
                let what = "add a rule to firewalld";
                note(self.call(what, ZONES, "addRichRule", &["ssi", zone, rule, "0"]).await);
            }
            for (zone, rule) in missing(&present, &desired) {
                let what = "remove a rule from firewalld";
                note(self.call(what, ZONES, "removeRichRule", &["ss", zone, rule]).await);
            }
            failed.map_or(Ok(()), Err)
        }
        .boxed()
    }
}

/// The rules of `all` that are not in `present`.
fn missing<'a>(
    all: &'a Zones,
    present: &'a Zones,
) -> impl Iterator<Item = (&'a str, &'a str)> + use<'a> {
    all.iter().flat_map(|(zone, rules)| {
        let has = |rule: &String| present.get(zone).is_some_and(|rules| rules.contains(rule));
        rules.iter().filter(move |rule| !has(rule)).map(|rule| (&**zone, &**rule))
    })
}

fn is_ours(rule: &str) -> bool {
    [PRIORITY_ALLOW, PRIORITY_OTHERS]
        .into_iter()
        .any(|priority| rule.starts_with(&format!("rule priority=\"{priority}\" ")))
}

/// A ruleset in firewalld's syntax.
fn rich_rules(ruleset: &Ruleset, default: &str) -> Zones {
    let mut zones = Zones::new();
    for rule in ruleset.rules() {
        let zone = rule.zone.as_deref().unwrap_or(default);
        let (priority, verdict) = match rule.verdict {
            Verdict::Allow => (PRIORITY_ALLOW, "accept"),
            Verdict::Drop => (PRIORITY_OTHERS, "drop"),
            Verdict::Reject => (PRIORITY_OTHERS, "reject"),
        };
        let peer = |peer: &crate::ruleset::Cidr| {
            let family = if peer.address.is_ipv4() { "ipv4" } else { "ipv6" };
            format!("family=\"{family}\" source address=\"{peer}\" ")
        };
        let mut peers: Vec<String> = rule.peers.iter().map(peer).collect();
        if peers.is_empty() {
            peers.push(String::new());
        }
        for peer in &peers {
            for ports in &rule.ports {
                let ports = match ports.first == ports.last {
                    true => ports.first.to_string(),
                    false => format!("{}-{}", ports.first, ports.last),
                };
                let protocol = rule.protocol.name();
                let rules = zones.entry(zone.to_owned()).or_default();
                rules.insert(format!(
                    "rule priority=\"{priority}\" {peer}port port=\"{ports}\" protocol=\"{protocol}\" {verdict}"
                ));
            }
        }
    }
    zones
}

#[cfg(test)]
mod tests;
