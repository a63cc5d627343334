//! What one write needs, and the quotas that it is charged to. Pure: no store, no clock.
use super::limited::Limited;
use super::quota::Quota;
use crate::kind::{list, text};
use serde_json::Value;
use setpoint_object::quantity::Quantity;
use setpoint_quota::{Scopes, Term, Usage, add, matching, subtract, usage};
use std::collections::{BTreeMap, BTreeSet};

/// The resources that each container of a pod must name if a quota limits them.
const REQUIRED: [&str; 6] =
    ["cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"];

/// Why a write is refused.
#[derive(Debug)]
pub(super) enum Refusal {
    /// 403.
    Forbidden(String),
    /// No quota covers a scope: a 500, as in the reference.
    Uncovered(String),
}

/// What a write needs.
#[derive(Debug)]
pub(super) struct Demand<'a> {
    group: &'a str,
    resource: &'a str,
    object: &'a Value,
    scopes: Scopes,
    /// The scopes of the object that is replaced.
    old_scopes: Option<Scopes>,
    /// All that the object uses. Without zeros.
    usage: Usage,
    /// More, or less, than before. Without zeros.
    delta: Usage,
    /// Used resources with negative amounts.
    negative: Vec<String>,
    /// Resources and scopes that a quota must cover.
    limited: BTreeSet<String>,
    limited_scopes: Vec<Term>,
}

impl<'a> Demand<'a> {
    /// Of an object that replaces `old`. `now` is in seconds since 1970.
    pub(super) fn new(
        group: &'a str,
        resource: &'a str,
        object: &'a Value,
        old: Option<&Value>,
        now: u64,
        limited: &Limited,
    ) -> Self {
        let mut delta = usage(group, resource, object, now);
        let scopes_of = |object| match group {
            "" => Scopes::of(resource, object),
            _ => Scopes::default(),
        };
        let scopes = scopes_of(object);
        let zero = Quantity::default();
        let negative = delta.iter().filter(|(_, amount)| amount.compare(&zero).is_lt());
        let negative = negative.map(|(name, _)| name.clone()).collect();
        let limited_names = limited.names(group, resource, &delta);
        let mut all = delta.clone();
        if let Some(old) = old {
            subtract(&mut delta, &usage(group, resource, old, now));
        }
        delta.retain(|_, amount| !amount.is_zero());
        all.retain(|_, amount| !amount.is_zero());
        Self {
            old_scopes: old.map(scopes_of),
            usage: all,
            limited: limited_names,
            limited_scopes: limited.scopes(group, resource, &scopes),
            group,
            resource,
            object,
            scopes,
            delta,
            negative,
        }
    }

    /// What the write adds to a quota: all of an object that was not in its scope before.
    fn added(&self, quota: &Quota) -> &Usage {
        let is_new = |scopes: &Scopes| !quota.scopes().iter().all(|term| scopes.is_in(term));
        if self.old_scopes.as_ref().is_some_and(is_new) { &self.usage } else { &self.delta }
    }

    fn restricted<'q>(&self, quota: &'q Quota) -> BTreeSet<&'q str> {
        let is_in_scope = quota.scopes().iter().all(|term| self.scopes.is_in(term));
        match is_in_scope {
            true => matching(quota.hard().keys().map(String::as_str), self.group, self.resource),
            false => BTreeSet::new(),
        }
    }

    /// Whether no quota has a say.
    pub(super) fn is_free(&self, quotas: &[Quota]) -> bool {
        quotas.iter().all(|quota| self.restricted(quota).is_empty())
    }

    /// Adds the demand to the usage of the quotas; returns the positions of the changed ones.
    ///
    /// # Errors
    ///
    /// Why the write is refused.
    pub(super) fn charge(&self, quotas: &mut [Quota]) -> Result<Vec<usize>, Refusal> {
        let mut covered: BTreeSet<String> = BTreeSet::new();
        let mut covered_scopes: Vec<&Term> = Vec::new();
        let mut matched = Vec::new();
        for (i, quota) in quotas.iter().enumerate() {
            covered_scopes.extend(quota.scopes().iter().filter(|term| self.scopes.is_in(term)));
            let restricted = self.restricted(quota);
            if restricted.is_empty() {
                continue;
            }
            let name = quota.name();
            self.check_named(&restricted)
                .map_err(|why| Refusal::Forbidden(format!("failed quota: {name}: {why}")))?;
            if !restricted.iter().all(|resource| quota.used().contains_key(*resource)) {
                let resources: Vec<&str> = restricted.into_iter().collect();
                return Err(Refusal::Forbidden(format!(
                    "status unknown for quota: {name}, resources: {}",
                    resources.join(",")
                )));
            }
            covered.extend(restricted.into_iter().map(str::to_owned));
            matched.push(i);
        }
        if !self.negative.is_empty() {
            let names = self.negative.join(",");
            return Err(Refusal::Forbidden(format!(
                "quota usage is negative for resource(s): {names}"
            )));
        }
        let is_free = match &matched[..] {
            [] => self.delta.is_empty(),
            matched => matched.iter().all(|i| self.added(&quotas[*i]).is_empty()),
        };
        if is_free {
            return Ok(Vec::new());
        }
        let missing: Vec<&str> = self.limited.difference(&covered).map(String::as_str).collect();
        if !missing.is_empty() {
            return Err(Refusal::Forbidden(format!(
                "insufficient quota to consume: {}",
                missing.join(",")
            )));
        }
        let missing: Vec<String> = self
            .limited_scopes
            .iter()
            .filter(|term| !covered_scopes.iter().any(|covered| covered.scope == term.scope))
            .map(|term| format!("{{{} {} [{}]}}", term.scope, term.operator, term.values.join(" ")))
            .collect();
        if !missing.is_empty() {
            return Err(Refusal::Uncovered(format!(
                "insufficient quota to match these scopes: [{}]",
                missing.join(" ")
            )));
        }
        let mut changed = Vec::new();
        for i in matched {
            let quota = &mut quotas[i];
            let mut requested = self.added(quota).clone();
            requested.retain(|name, _| quota.hard().contains_key(name));
            if requested.is_empty() {
                continue;
            }
            let mut used = quota.used().clone();
            add(&mut used, &requested);
            let zero = Quantity::default();
            let exceeded: Vec<&String> = requested
                .iter()
                .filter(|(name, amount)| {
                    amount.compare(&zero).is_gt()
                        && used[*name].compare(&quota.hard()[*name]).is_gt()
                })
                .map(|(name, _)| name)
                .collect();
            if !exceeded.is_empty() {
                let shown = |amounts: &Usage| {
                    let one =
                        |name: &&String| format!("{name}={}", amounts.get(*name).unwrap_or(&zero));
                    exceeded.iter().map(one).collect::<Vec<_>>().join(",")
                };
                return Err(Refusal::Forbidden(format!(
                    "exceeded quota: {}, requested: {}, used: {}, limited: {}",
                    quota.name(),
                    shown(&requested),
                    shown(quota.used()),
                    shown(quota.hard())
                )));
            }
            quota.charge(used);
            changed.push(i);
        }
        Ok(changed)
    }

    /// Each container of a pod must name the amounts that are limited, unless the whole pod names
    /// any.
    fn check_named(&self, restricted: &BTreeSet<&str>) -> Result<(), String> {
        if !self.group.is_empty() || self.resource != "pods" {
            return Ok(());
        }
        let spec = &self.object["spec"];
        if setpoint_quota::pod::has_own(spec) {
            return Ok(());
        }
        let mut missing: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for limited in restricted.iter().filter(|name| REQUIRED.contains(*name)) {
            let (member, name) = limited.split_once('.').unwrap_or(("requests", limited));
            let has = |resources: &Value| resources[member].get(name).is_some();
            let containers = ["containers", "initContainers"].into_iter();
            for container in containers.flat_map(|member| list(spec, member)) {
                if !has(&container["resources"]) {
                    missing.entry(*limited).or_default().push(text(container, "name"));
                }
            }
        }
        if missing.is_empty() {
            return Ok(());
        }
        let line = |(resource, mut names): (&str, Vec<&str>)| {
            names.sort_unstable();
            format!("{resource} for: {}", names.join(","))
        };
        let lines: Vec<String> = missing.into_iter().map(line).collect();
        Err(format!("must specify {}", lines.join("; ")))
    }
}

#[cfg(test)]
mod tests {
    use super::super::quota::Known;
    use super::*;
    use bytes::Bytes;
    use serde_json::json;
    use setpoint_store::Revision;

    fn quota(spec: Value, hard: Value, used: Value) -> Quota {
        let tree = json!({
            "metadata": {"name": "q"}, "spec": spec, "status": {"hard": hard, "used": used},
        });
        let stored = (Bytes::new(), tree.to_string().into(), Revision(1));
        Known::default().quota(stored).unwrap()
    }
    fn charge(
        quotas: &mut [Quota],
        resource: &str,
        object: &Value,
        old: Option<&Value>,
        limited: Value,
    ) -> String {
        let limited = Limited::new(&json!({"limitedResources": limited})).unwrap();
        match Demand::new("", resource, object, old, 0, &limited).charge(quotas) {
            Ok(changed) => {
                let used = |i: &usize| quotas[*i].object().unwrap()["status"]["used"].to_string();
                changed.iter().map(used).collect()
            }
            Err(Refusal::Forbidden(why) | Refusal::Uncovered(why)) => why,
        }
    }
    fn pod(requests: Value) -> Value {
        json!({"spec": {"containers": [{"name": "b", "resources": {"requests": requests}}, {"name": "a"}]}})
    }

    #[test]
    fn usage_is_added_until_the_limit() {
        let hard = json!({"secrets": "2", "count/secrets": "2", "pods": "5"});
        let mut quotas =
            [quota(json!({}), hard, json!({"secrets": "1", "count/secrets": "0", "pods": "0"}))];
        let object = json!({});
        assert_eq!(
            charge(&mut quotas, "secrets", &object, None, Value::Null),
            r#"{"count/secrets":"1","pods":"0","secrets":"2"}"#
        );
        assert_eq!(
            charge(&mut quotas, "secrets", &object, None, Value::Null),
            "exceeded quota: q, requested: secrets=1, used: secrets=2, limited: secrets=2"
        );
        assert_eq!(charge(&mut quotas, "configmaps", &object, None, Value::Null), "");
    }

    #[test]
    fn containers_must_name_what_is_limited() {
        let hard = json!({"limits.cpu": "1", "requests.memory": "1"});
        let mut quotas = [quota(json!({}), hard.clone(), hard)];
        assert_eq!(
            charge(&mut quotas, "pods", &pod(json!({"memory": "1"})), None, Value::Null),
            "failed quota: q: must specify limits.cpu for: a,b; requests.memory for: a"
        );
    }

    #[test]
    fn quota_without_usage_refuses_and_without_limits_allows() {
        let mut quotas = [quota(json!({}), json!({"configmaps": "1"}), json!({}))];
        let object = json!({});
        assert_eq!(
            charge(&mut quotas, "configmaps", &object, None, Value::Null),
            "status unknown for quota: q, resources: configmaps"
        );
        let mut quotas = [quota(json!({"hard": {"configmaps": "0"}}), json!({}), json!({}))];
        assert_eq!(charge(&mut quotas, "configmaps", &object, None, Value::Null), "");
    }

    #[test]
    fn scopes_choose_the_quotas() {
        let none = json!({"pods": "0"});
        let best_effort = || json!({"status": {"qosClass": "BestEffort"}});
        let mut quotas = [quota(json!({"scopes": ["BestEffort"]}), none.clone(), none.clone())];
        let refused = "exceeded quota: q, requested: pods=1, used: pods=0, limited: pods=0";
        assert_eq!(charge(&mut quotas, "pods", &best_effort(), None, Value::Null), refused);
        let other = json!({"status": {"qosClass": "Burstable"}});
        assert_eq!(charge(&mut quotas, "pods", &other, None, Value::Null), "");
    }

    #[test]
    fn updates_are_charged_for_the_difference() {
        let service = |kind: &str| json!({"spec": {"type": kind, "ports": [{}]}});
        let hard = json!({"services.nodeports": "1", "services": "1"});
        let mut quotas =
            [quota(json!({}), hard, json!({"services.nodeports": "0", "services": "1"}))];
        let (inner, node) = (service("ClusterIP"), service("NodePort"));
        assert_eq!(
            charge(&mut quotas, "services", &node, Some(&inner), Value::Null),
            r#"{"services":"1","services.nodeports":"1"}"#
        );
        assert_eq!(
            charge(&mut quotas, "services", &inner, Some(&node), Value::Null),
            r#"{"services":"1","services.nodeports":"0"}"#
        );
        assert_eq!(charge(&mut quotas, "services", &inner, Some(&inner), Value::Null), "");
    }

    #[test]
    fn limited_resources_need_a_quota() {
        let limited = json!([{"resource": "pods", "matchContains": ["requests.example.com/gpu"]}]);
        let object = pod(json!({"example.com/gpu": "1"}));
        assert_eq!(
            charge(&mut [], "pods", &object, None, limited.clone()),
            "insufficient quota to consume: requests.example.com/gpu"
        );
        assert_eq!(charge(&mut [], "pods", &pod(json!({})), None, limited), "");
        let scoped = json!([{"resource": "pods", "matchScopes": [
            {"scopeName": "PriorityClass", "operator": "In", "values": ["high", "higher"]},
        ]}]);
        let object = json!({"spec": {"priorityClassName": "high"}});
        assert_eq!(
            charge(&mut [], "pods", &object, None, scoped.clone()),
            "insufficient quota to match these scopes: [{PriorityClass In [high higher]}]"
        );
        // A quota for some of the values of a scope covers it.
        let spec = json!({"scopeSelector": {"matchExpressions": [
            {"scopeName": "PriorityClass", "operator": "In", "values": ["high"]},
        ]}});
        let mut quotas = [quota(spec, json!({"pods": "1"}), json!({"pods": "0"}))];
        assert_eq!(charge(&mut quotas, "pods", &object, None, scoped), r#"{"pods":"1"}"#);
        // What is not used is not limited.
        let limited = json!([{"resource": "services", "matchContains": ["nodeports"]}]);
        let service = json!({"spec": {"type": "ClusterIP", "ports": [{}]}});
        assert_eq!(charge(&mut [], "services", &service, None, limited), "");
    }
}
