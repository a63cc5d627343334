//! The status of DeviceTaintRules: whether pods are being evicted, and what a rule without effect
//! would do.

use super::taints::{Allocated, NO_EXECUTE, Rule};
use super::{BY_DEVICE, NAME, Pass, Pod, READ_OBJECTS, STATUS_PERIOD, Slice, rules, used};
use crate::workload::resource_claim::Claim;
use kube_core::DynamicObject;
use kube_core::params::{Patch, PatchParams};
use serde_json::{Value, json};
use setpoint_object::label::Selector;
use setpoint_object::taint::Taint;
use setpoint_object::time::Timestamp;
use setpoint_runtime::client::ignore_not_found;
use setpoint_runtime::{BoxError, Client, Context, Request};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// The condition that is written.
const CONDITION: &str = "EvictionInProgress";

impl Pass {
    /// Writes the status of a rule. Returns how long to wait if that was done just before.
    pub(super) async fn status(
        &self,
        name: &Arc<str>,
        context: &Context,
    ) -> Result<Option<Duration>, BoxError> {
        let key = Request::cluster(name.clone());
        let api = context.client().api_with::<DynamicObject>(rules());
        let found = api.get(&key)?;
        let rule = found.as_ref().map(|found| Rule::read(found));
        // What earlier rules of the name did is forgotten.
        self.shared.evicted.lock().retain(|id, _| {
            id.name != *name || rule.as_ref().is_some_and(|rule| rule.id.uid == id.uid)
        });
        let (Some(found), Some(rule)) = (found, rule) else { return Ok(None) };
        let conditions = found.data["status"]["conditions"].as_array().into_iter().flatten();
        let mut conditions = conditions.filter(|condition| condition["type"] == CONDITION);
        let before = conditions.next().unwrap_or(&Value::Null);
        let now = context.clock().now();
        let written = before["lastTransitionTime"].as_str().and_then(Timestamp::parse);
        if let Some(written) = written
            && before["observedGeneration"] == rule.generation
        {
            let left = (written + STATUS_PERIOD).since(now);
            if !left.is_zero() {
                return Ok(Some(left));
            }
        }
        let counts = self.count(context.client(), &rule).await?;
        let n_evicted = self.shared.evicted.lock().get(&rule.id).copied().unwrap_or_default();
        let mut condition = condition(&rule, &counts, n_evicted);
        let members = ["status", "reason", "message", "observedGeneration"];
        if members.iter().all(|member| condition[member] == before[member]) {
            return Ok(None);
        }
        // Any change counts as a transition, so that it is known when the last one was.
        condition["lastTransitionTime"] = now.rfc3339().into();
        let status = json!({
            "apiVersion": "resource.k8s.io/v1beta2", "kind": "DeviceTaintRule",
            "metadata": {"name": &**name, "uid": &*rule.id.uid},
            "status": {"conditions": [condition]},
        });
        let params = PatchParams::apply(NAME).force();
        let written = api.status().patch_with(&key, &Patch::Apply(&status), &params).await;
        ignore_not_found(written)?;
        Ok(None)
    }

    /// Counts what a rule does, or would do.
    async fn count(&self, client: &Client, rule: &Rule) -> Result<Counts, BoxError> {
        let mut counts = Counts::default();
        let is_simulated = rule.taint.effect == "None";
        if !is_simulated && !rule.evicts() {
            return Ok(counts);
        }
        if is_simulated {
            counts.n_published = self.published(client, rule).await?;
        }
        let taint = Taint { effect: NO_EXECUTE.to_owned(), ..rule.taint.clone() };
        let pods = client.api::<Pod>();
        let mut leaving = BTreeSet::new();
        let claims = client.api::<Claim>().lister()?;
        let claims = claims.objects_by_index(BY_DEVICE, &rule.index_value())?;
        for some in claims.chunks(READ_OBJECTS) {
            for claim in some {
                let claim = claim.get()?;
                let devices = Allocated::all(&claim.status.allocation);
                let selected: Vec<_> =
                    devices.iter().filter(|device| rule.selects(device)).collect();
                counts.n_allocated += selected.len();
                if !selected.iter().any(|device| device.leaves_at(&taint).is_some()) {
                    continue;
                }
                for key in super::consumers(&claim) {
                    let Some(pod) = pods.get(&key)? else { continue };
                    let uses = |claims: &[Arc<Claim>]| {
                        claims.iter().any(|used| used.metadata.uid == claim.metadata.uid)
                    };
                    let is_running = !pod.is_being_deleted() && !pod.node_name().is_empty();
                    if is_running && uses(&used(client, &pod)?) {
                        leaving.insert(key);
                    }
                }
            }
            tokio::task::yield_now().await;
        }
        let namespaces: BTreeSet<_> = leaving.iter().map(|pod| &pod.namespace).collect();
        counts.n_namespaces = namespaces.len();
        counts.n_pods = leaving.len();
        Ok(counts)
    }

    /// How many devices of slices a rule selects.
    async fn published(&self, client: &Client, rule: &Rule) -> Result<usize, BoxError> {
        let mut n = 0;
        let slices = client.api::<Slice>().lister()?.objects(&Selector::everything());
        for some in slices.chunks(READ_OBJECTS) {
            for slice in some {
                let slice = slice.get()?;
                let spec = &slice.spec;
                let (driver, pool) = (&spec.driver, &spec.pool);
                let newest = self.shared.taints.lock().newest(&spec.key());
                if newest.is_none_or(|newest| newest == pool.generation) {
                    let devices = spec.devices.iter();
                    n += devices
                        .filter(|device| rule.selects_name(driver, &pool.name, &device.name))
                        .count();
                }
            }
            tokio::task::yield_now().await;
        }
        Ok(n)
    }
}

/// What a rule does, or would do.
#[derive(Debug, Default)]
struct Counts {
    /// The devices of slices that it selects.
    n_published: usize,
    /// The devices of claims that it selects.
    n_allocated: usize,
    /// The pods that have to leave.
    n_pods: usize,
    /// Their namespaces.
    n_namespaces: usize,
}

/// A number of things, with what follows: one thing has other words.
fn many(n: usize, one: &str, more: &str) -> String {
    if n == 1 { format!("1 {one}") } else { format!("{n} {more}") }
}

/// The condition of a rule, without the time.
fn condition(rule: &Rule, counts: &Counts, n_evicted: u64) -> Value {
    let namespaces = many(counts.n_namespaces, "namespace", "different namespaces");
    let (mut status, reason, mut message) = ("False", &rule.taint.effect, String::new());
    let reason = match &**reason {
        NO_EXECUTE if counts.n_pods > 0 => {
            status = "True";
            let pods = many(counts.n_pods, "pod needs", "pods need");
            message = format!("{pods} to be evicted in {namespaces}.");
            "PodsPendingEviction"
        }
        NO_EXECUTE if n_evicted > 0 => "Completed",
        NO_EXECUTE => "NotStarted",
        "None" => {
            let published = many(counts.n_published, "published device", "published devices");
            let allocated = many(counts.n_allocated, "allocated device", "allocated devices");
            let pods = many(counts.n_pods, "pod", "pods");
            message = format!(
                "{published} selected. {allocated} selected. {pods} would be evicted in {namespaces} if the effect was NoExecute. This information will not be updated again. Recreate the DeviceTaintRule to trigger an update."
            );
            "NoEffect"
        }
        _ => {
            "Eviction only happens for the NoExecute effect.".clone_into(&mut message);
            "OtherEffect"
        }
    };
    if n_evicted > 0 {
        let space = if message.is_empty() { "" } else { " " };
        let pods = many(usize::try_from(n_evicted).unwrap_or(usize::MAX), "pod", "pods");
        message += &format!("{space}{pods} evicted since starting the controller.");
    }
    json!({
        "type": CONDITION, "status": status, "reason": reason, "message": message,
        "observedGeneration": rule.generation,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_has_the_words_of_the_original() {
        let check = |effect: &str,
                     [n_pods, n_namespaces]: [usize; 2],
                     n_evicted: u64,
                     expected: [&str; 3]| {
            let rule = json!({
                "metadata": {"generation": 2},
                "spec": {"deviceSelector": {}, "taint": {"key": "k", "effect": effect}},
            });
            let rule = Rule::read(&serde_json::from_value(rule).unwrap());
            let counts = Counts { n_published: 1, n_allocated: 2, n_pods, n_namespaces };
            let condition = condition(&rule, &counts, n_evicted);
            let [status, reason, message] = expected;
            let expected = json!({
                "type": "EvictionInProgress", "status": status, "reason": reason,
                "message": message, "observedGeneration": 2,
            });
            assert_eq!(condition, expected);
        };
        check(NO_EXECUTE, [0, 0], 0, ["False", "NotStarted", ""]);
        check(
            NO_EXECUTE,
            [1, 1],
            0,
            ["True", "PodsPendingEviction", "1 pod needs to be evicted in 1 namespace."],
        );
        check(
            NO_EXECUTE,
            [3, 2],
            1,
            [
                "True",
                "PodsPendingEviction",
                "3 pods need to be evicted in 2 different namespaces. 1 pod evicted since starting the controller.",
            ],
        );
        let evicted = "4 pods evicted since starting the controller.";
        check(NO_EXECUTE, [0, 0], 4, ["False", "Completed", evicted]);
        check(
            "None",
            [0, 0],
            0,
            [
                "False",
                "NoEffect",
                "1 published device selected. 2 allocated devices selected. 0 pods would be evicted in 0 different namespaces if the effect was NoExecute. This information will not be updated again. Recreate the DeviceTaintRule to trigger an update.",
            ],
        );
        let other = "Eviction only happens for the NoExecute effect.";
        check("NoSchedule", [0, 0], 0, ["False", "OtherEffect", other]);
    }
}
