//! The findings of a pass, and the conditions that report them.

use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// Maximum time between two passes while content remains.
const WAIT_MAX: Duration = Duration::from_secs(20);

/// The findings of one pass.
#[derive(Debug, Default)]
pub(super) struct Findings {
    /// Groups that discovery could not read.
    pub(super) stale_groups: Vec<String>,
    /// Errors of resources that could not be deleted, by resource.
    pub(super) failures: BTreeMap<String, String>,
    /// Number of remaining instances, by resource (`configmaps.`).
    pub(super) remaining: BTreeMap<String, usize>,
    /// Number of remaining instances, by finalizer.
    pub(super) finalizers: BTreeMap<String, usize>,
    /// Whether pods remain, and so nothing else was deleted.
    pub(super) waits_for_pods: bool,
    /// The longest time that something which remains is expected to take.
    pub(super) longest: Duration,
}

impl Findings {
    /// Why the pass failed; `None` if it did not.
    pub(super) fn failure(&self) -> Option<String> {
        let stale = (!self.stale_groups.is_empty()).then(|| self.stale_message());
        let failed = (!self.failures.is_empty()).then(|| self.failure_message());
        stale.or(failed)
    }

    /// How long to wait before the next pass; `None` if nothing remains. What remains may go
    /// sooner than it was given time for.
    pub(super) fn estimate(&self) -> Option<Duration> {
        let wait = || (self.longest / 2 + Duration::from_secs(1)).min(WAIT_MAX);
        (!self.remaining.is_empty()).then(wait)
    }

    fn stale_message(&self) -> String {
        let groups: Vec<_> = self
            .stale_groups
            .iter()
            .map(|group| format!("{group}: stale GroupVersion discovery: {group}"))
            .collect();
        format!(
            "Discovery failed for some groups, {} failing: unable to retrieve the complete list of server APIs: {}",
            groups.len(),
            groups.join(", ")
        )
    }

    fn failure_message(&self) -> String {
        let mut texts: Vec<&str> = self.failures.values().map(String::as_str).collect();
        texts.sort_unstable();
        let text = texts.join(", ");
        format!("Failed to delete all resource types, {} remaining: {text}", texts.len())
    }

    /// The five conditions, as `(type, status, reason, message)`; `True` means a problem.
    fn conditions(&self) -> [(&'static str, &'static str, &'static str, String); 5] {
        let of =
            |kind, problem: Option<(&'static str, String)>, reason, message: &str| match problem {
                Some((reason, message)) => (kind, "True", reason, message),
                None => (kind, "False", reason, message.to_owned()),
            };
        let counted = |counts: &BTreeMap<String, usize>, verb: &str| {
            counts
                .iter()
                .map(|(name, count)| format!("{name} {verb} {count} resource instances"))
                .collect::<Vec<_>>()
                .join(", ")
        };
        // While pods remain nothing else was examined, so the other conditions read as if nothing
        // remained.
        let remaining = (!self.remaining.is_empty() && !self.waits_for_pods).then(|| {
            (
                "SomeResourcesRemain",
                format!("Some resources are remaining: {}", counted(&self.remaining, "has")),
            )
        });
        let held = (!self.finalizers.is_empty() && !self.waits_for_pods).then(|| {
            let message = format!(
                "Some content in the namespace has finalizers remaining: {}",
                counted(&self.finalizers, "in")
            );
            ("SomeFinalizersRemain", message)
        });
        [
            of(
                "NamespaceDeletionDiscoveryFailure",
                (!self.stale_groups.is_empty()).then(|| ("DiscoveryFailed", self.stale_message())),
                "ResourcesDiscovered",
                "All resources successfully discovered",
            ),
            of(
                "NamespaceDeletionGroupVersionParsingFailure",
                None,
                "ParsedGroupVersions",
                "All legacy kube types successfully parsed",
            ),
            of(
                "NamespaceDeletionContentFailure",
                (!self.failures.is_empty())
                    .then(|| ("ContentDeletionFailed", self.failure_message())),
                "ContentDeleted",
                "All content successfully deleted, may be waiting on finalization",
            ),
            of(
                "NamespaceContentRemaining",
                remaining,
                "ContentRemoved",
                "All content successfully removed",
            ),
            of(
                "NamespaceFinalizersRemaining",
                held,
                "ContentHasNoFinalizers",
                "All content-preserving finalizers finished",
            ),
        ]
    }
}

/// Sets the five conditions in a namespace's status; returns whether any changed.
pub(super) fn set_all(namespace: &mut Value, findings: &Findings, now: &str) -> bool {
    let mut conditions = namespace["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let mut changed = false;
    for (kind, status, reason, message) in findings.conditions() {
        let known = conditions.iter_mut().find(|condition| condition["type"] == kind);
        let same = |found: &Value| {
            found["status"] == status && found["reason"] == reason && found["message"] == message
        };
        if known.as_deref().is_some_and(same) {
            continue;
        }
        changed = true;
        let mut condition = json!({"type": kind, "status": status, "lastTransitionTime": now, "reason": reason, "message": message});
        match known {
            Some(known) => {
                if known["status"] == status {
                    condition["lastTransitionTime"] = known["lastTransitionTime"].clone();
                }
                *known = condition;
            }
            None => conditions.push(condition),
        }
    }
    namespace["status"]["conditions"] = conditions.into();
    changed
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    fn describe(findings: &Findings) -> String {
        findings
            .conditions()
            .map(|(kind, status, reason, message)| format!("{kind}={status} {reason}: {message}"))
            .join("\n")
    }

    #[test]
    fn empty_pass_reads_all_false() {
        expect![[r#"
            NamespaceDeletionDiscoveryFailure=False ResourcesDiscovered: All resources successfully discovered
            NamespaceDeletionGroupVersionParsingFailure=False ParsedGroupVersions: All legacy kube types successfully parsed
            NamespaceDeletionContentFailure=False ContentDeleted: All content successfully deleted, may be waiting on finalization
            NamespaceContentRemaining=False ContentRemoved: All content successfully removed
            NamespaceFinalizersRemaining=False ContentHasNoFinalizers: All content-preserving finalizers finished"#]]
        .assert_eq(&describe(&Findings::default()));
    }

    #[test]
    fn remaining_instances_are_counted_and_sorted() {
        let findings = Findings {
            stale_groups: vec!["broken.io/v1".into()],
            remaining: BTreeMap::from([
                ("secrets.".into(), 1),
                ("configmaps.".into(), 2),
                ("plains.ex.io".into(), 1),
            ]),
            finalizers: BTreeMap::from([("ex.io/f1".into(), 2), ("ex.io/f0".into(), 1)]),
            longest: Duration::from_secs(15),
            ..Findings::default()
        };
        expect![[r#"
            NamespaceDeletionDiscoveryFailure=True DiscoveryFailed: Discovery failed for some groups, 1 failing: unable to retrieve the complete list of server APIs: broken.io/v1: stale GroupVersion discovery: broken.io/v1
            NamespaceDeletionGroupVersionParsingFailure=False ParsedGroupVersions: All legacy kube types successfully parsed
            NamespaceDeletionContentFailure=False ContentDeleted: All content successfully deleted, may be waiting on finalization
            NamespaceContentRemaining=True SomeResourcesRemain: Some resources are remaining: configmaps. has 2 resource instances, plains.ex.io has 1 resource instances, secrets. has 1 resource instances
            NamespaceFinalizersRemaining=True SomeFinalizersRemain: Some content in the namespace has finalizers remaining: ex.io/f0 in 1 resource instances, ex.io/f1 in 2 resource instances"#]]
        .assert_eq(&describe(&findings));
        assert_eq!(findings.estimate(), Some(Duration::from_millis(8500)));
    }

    #[test]
    fn failures_are_listed_in_order() {
        let mut findings = Findings::default();
        findings.failures.insert("pods.".into(), "a".into());
        let text = |findings: &Findings| {
            describe(findings)
                .lines()
                .find(|line| line.contains("ContentFailure"))
                .unwrap()
                .to_owned()
        };
        assert_eq!(
            text(&findings),
            "NamespaceDeletionContentFailure=True ContentDeletionFailed: Failed to delete all resource types, 1 remaining: a"
        );
        findings.failures.insert("events.".into(), "b".into());
        assert_eq!(
            text(&findings),
            "NamespaceDeletionContentFailure=True ContentDeletionFailed: Failed to delete all resource types, 2 remaining: a, b"
        );
    }

    #[test]
    fn remaining_pods_hide_other_content_and_set_the_estimate() {
        let findings = Findings {
            remaining: BTreeMap::from([("pods.".into(), 1)]),
            finalizers: BTreeMap::from([("ex.io/f".into(), 1)]),
            waits_for_pods: true,
            longest: Duration::from_secs(30),
            ..Findings::default()
        };
        assert!(!describe(&findings).contains("=True"));
        assert_eq!(findings.estimate(), Some(Duration::from_secs(16)));
        let hours = Findings { longest: Duration::from_secs(7200), ..findings };
        assert_eq!(hours.estimate(), Some(WAIT_MAX));
    }

    #[test]
    fn transition_time_changes_only_with_the_status() {
        let mut namespace = json!({"status": {"phase": "Terminating"}});
        assert!(set_all(&mut namespace, &Findings::default(), "t1"));
        assert!(!set_all(&mut namespace, &Findings::default(), "t2"), "nothing new");
        let findings =
            Findings { remaining: BTreeMap::from([("secrets.".into(), 1)]), ..Findings::default() };
        assert!(set_all(&mut namespace, &findings, "t3"));
        let times: Vec<_> = namespace["status"]["conditions"]
            .as_array()
            .unwrap()
            .iter()
            .map(|c| c["lastTransitionTime"].as_str().unwrap())
            .collect();
        assert_eq!(times, ["t1", "t1", "t1", "t3", "t1"]);
    }
}
