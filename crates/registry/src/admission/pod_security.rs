//! PodSecurity: checks pods against the Pod Security Standards of their namespace (spec: admission
//! §2.1).
//!
//! # Theory
//!
//! ```text
//! labels of the namespace, defaults ──▶ Policy: enforce, audit, warn, each a level and a version
//! pod, template of a workload ──▶ checks (a table) ──▶ 403, audit annotation, warning
//! ```
//!
//! Workloads are never refused: their pods will be.
mod checks;
mod container_checks;
mod policy;
mod subject;

use super::{Admission, Operation, Review};
use crate::kind::{list, text};
use crate::stored::tree;
use checks::{Violation, violations};
use futures::FutureExt;
use futures::future::BoxFuture;
use policy::{Exemptions, LevelVersion, Policy};
use serde_json::Value;
use setpoint_object::error::aggregate;
use setpoint_object::field::{self, quote};
use setpoint_object::meta::ObjectExt;
use setpoint_object::{ApiError, GroupVersionResource};
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;
use subject::Subject;
use tokio::time::Instant;

/// Maximum number of existing pods that are checked when a namespace is tightened, and how long: as
/// kube-apiserver's `defaultNamespaceMaxPodsToCheck` and `defaultNamespacePodCheckTimeout`.
const PODS_MAX: usize = 3000;
const PODS_PATIENCE: Duration = Duration::from_secs(1);
/// Pods that are checked before other tasks run. A check takes some ten microseconds.
const PODS_PER_POLL: usize = 32;

/// Subresources of pods that change nothing that is checked.
const IGNORED: [&str; 8] =
    ["attach", "binding", "eviction", "exec", "log", "portforward", "proxy", "status"];

#[derive(Debug)]
pub(super) struct PodSecurity {
    defaults: Policy,
    exempt: Exemptions,
}

impl PodSecurity {
    /// With a PodSecurityConfiguration.
    pub(super) fn new(config: &Value) -> Result<Self, String> {
        let defaults = Policy::of_config(&config["defaults"])?;
        let mut errors = Vec::new();
        let exempt = Exemptions::new(&config["exemptions"], &mut errors);
        if errors.is_empty() {
            Ok(Self { defaults, exempt })
        } else {
            Err(field::aggregate(&errors))
        }
    }
}

impl Admission for PodSecurity {
    fn name(&self) -> &str {
        "PodSecurity"
    }
    fn handles(&self, review: &Review<'_>) -> bool {
        if !matches!(review.operation, Operation::Create | Operation::Update) {
            return false;
        }
        match (path_of(review), review.subresource) {
            (Some(""), Some(part)) => !IGNORED.contains(&part.as_str()),
            (Some(_), part) => part.is_none(),
            (None, _) => review.is("", "namespaces"),
        }
    }
    fn validate<'a>(
        &'a self,
        review: &'a Review<'a>,
        object: Option<&'a Value>,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        async move {
            match (object, path_of(review)) {
                (None, _) => Ok(()),
                (Some(namespace), None) => self.check_namespace(review, namespace).await,
                (Some(object), Some(path)) => self.check_pod(review, object, path).await,
            }
        }
        .boxed()
    }
}
/// Where the template of the pods is that an object makes, as `spec.template`; empty for pods;
/// `None` for kinds without pods.
fn path_of(review: &Review<'_>) -> Option<&'static str> {
    let spec: &'static str = review.resource.kind.pod_spec;
    spec.strip_suffix("spec").map(|path| path.trim_end_matches('.'))
}

impl PodSecurity {
    async fn check_pod(
        &self,
        review: &Review<'_>,
        object: &Value,
        path: &str,
    ) -> Result<(), ApiError> {
        let is_pod = path.is_empty();
        let (counts, about) = (&review.inner.figures.pod_security, about(review));
        let count = |is_allowed: bool, level: &LevelVersion, mode: &str| {
            let [level, version] = level.labels();
            counts.evaluated(is_allowed, [&level, &version], mode, about);
        };
        let exempt = |why: &str| {
            counts.exempted(about);
            review.annotate("pod-security.kubernetes.io/exempt", why);
            Ok(())
        };
        if self.exempt.namespaces.contains(review.namespace) {
            return exempt("namespace");
        }
        if self.exempt.usernames.contains(&*review.attributes.identity.user) {
            return exempt("user");
        }
        let Some(namespace) = review.namespace_object().await? else {
            let why = format!("failed to lookup namespace {}", quote(review.namespace));
            counts.failed(true, about);
            if is_pod {
                return Err(ApiError::internal(why));
            }
            review.annotate("pod-security.kubernetes.io/error", why);
            return Ok(());
        };
        let (policy, errors) = self.defaults.of_namespace(&namespace);
        let is_open = |level: &LevelVersion| level.is_privileged();
        let is_unchecked = is_open(&policy.warn) && is_open(&policy.audit);
        if errors.is_empty() && is_unchecked && (!is_pod || is_open(&policy.enforce)) {
            if is_pod {
                count(true, &policy.enforce, "enforce");
                // Whatever version the namespace names: one answer serves all of these.
                annotate_policy(review, "privileged:latest".to_owned());
            }
            return Ok(());
        }
        let template = match is_pod {
            true => Some(object),
            false => {
                let template = object.pointer(&format!("/{}", path.replace('.', "/")));
                template.filter(|template| template.is_object())
            }
        };
        let Some(template) = template else { return Ok(()) };
        if is_pod
            && let Some(old) = review.old
            && !is_significant(object, old)
        {
            return Ok(());
        }
        if self.exempt.runtime_classes.contains(text(&template["spec"], "runtimeClassName")) {
            return exempt("runtimeClass");
        }
        if !errors.is_empty() {
            let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
            counts.failed(false, about);
            let why = format!("Failed to parse policy: {}", aggregate(&errors));
            review.annotate("pod-security.kubernetes.io/error", why);
        }
        let subject = Subject::new(template);
        let violates = |level: &LevelVersion| {
            let found = violations(level, &subject);
            (!found.is_empty()).then(|| {
                format!("violate PodSecurity {}: {}", quote(&level.to_string()), details(&found))
            })
        };
        if let Some(violates) = violates(&policy.audit) {
            count(false, &policy.audit, "audit");
            review.annotate(
                "pod-security.kubernetes.io/audit-violations",
                format!("would {violates}"),
            );
        }
        if is_pod {
            annotate_policy(review, policy.enforce.to_string());
            let violates = violates(&policy.enforce);
            count(violates.is_none(), &policy.enforce, "enforce");
            if let Some(violates) = violates {
                let violates = violates.replacen("violate", "violates", 1);
                return Err(review.forbidden(&violates));
            }
        }
        if let Some(violates) = violates(&policy.warn) {
            count(false, &policy.warn, "warn");
            review.warn(format!("would {violates}"));
        }
        Ok(())
    }

    async fn check_namespace(
        &self,
        review: &Review<'_>,
        namespace: &Value,
    ) -> Result<(), ApiError> {
        let (new, errors) = self.defaults.of_namespace(namespace);
        let is_exempt = self.exempt.namespaces.contains(namespace.name());
        let Some(old) = review.old else {
            refuse(review, namespace, &errors)?;
            if is_exempt {
                self.warn_of_exemption(review, namespace, &new);
            }
            return Ok(());
        };
        let (before, old_errors) = self.defaults.of_namespace(old);
        if errors != old_errors {
            refuse(review, namespace, &errors)?;
        }
        let is_looser = new.enforce.version == before.enforce.version
            && new.enforce.level <= before.enforce.level;
        if new.enforce == before.enforce || new.enforce.is_privileged() || is_looser {
            return Ok(());
        }
        match is_exempt {
            true => self.warn_of_exemption(review, namespace, &new),
            false => self.warn_of_pods(review, namespace.name(), &new.enforce).await,
        }
        Ok(())
    }

    /// Warns that the labels of an exempt namespace have no effect.
    fn warn_of_exemption(&self, review: &Review<'_>, namespace: &Value, policy: &Policy) {
        if policy.is_privileged() || *policy == self.defaults {
            return;
        }
        let (name, policy) = (quote(namespace.name()), policy.labelled(namespace));
        review.warn(format!(
            "namespace {name} is exempt from Pod Security, and the policy ({policy}) will be ignored"
        ));
    }

    /// Warns of existing pods that a namespace would refuse from now on.
    async fn warn_of_pods(&self, review: &Review<'_>, namespace: &str, enforce: &LevelVersion) {
        let pods = GroupVersionResource::new("", "v1", "pods");
        let Ok(found) = review.objects().list(&pods, namespace).await else {
            return review.warn("failed to list pods while checking new PodSecurity enforce level");
        };
        let end = Instant::now() + PODS_PATIENCE;
        let mut n_checked = 0;
        // By reasons: the first pod and the number of pods.
        let mut by_reason: BTreeMap<String, (String, usize)> = BTreeMap::new();
        for pod in found.iter().take(PODS_MAX) {
            if n_checked % PODS_PER_POLL == PODS_PER_POLL - 1 {
                tokio::task::yield_now().await;
                if Instant::now() >= end {
                    break;
                }
            }
            n_checked += 1;
            let Ok(pod) = tree(&pod.bytes) else { continue };
            let class = text(&pod["spec"], "runtimeClassName");
            if self.exempt.runtime_classes.contains(class) {
                continue;
            }
            let found = violations(enforce, &Subject::new(&pod));
            if !found.is_empty() {
                let reasons: Vec<&str> = found.iter().map(|found| &*found.reason).collect();
                let first = || (pod.name().to_owned(), 0);
                by_reason.entry(reasons.join(", ")).or_insert_with(first).1 += 1;
            }
        }
        if n_checked < found.len() {
            review.warn(format!(
                "new PodSecurity enforce level only checked against the first {n_checked} of {} existing pods",
                found.len()
            ));
        }
        if !by_reason.is_empty() {
            let (namespace, enforce) = (quote(namespace), quote(&enforce.to_string()));
            review.warn(format!("existing pods in namespace {namespace} violate the new PodSecurity enforce level {enforce}"));
        }
        let line = |(reasons, (first, n)): (String, (String, usize))| match n {
            1 => format!("{first}: {reasons}"),
            2 => format!("{first} (and 1 other pod): {reasons}"),
            n => format!("{first} (and {} other pods): {reasons}", n - 1),
        };
        let mut lines: Vec<String> = by_reason.into_iter().map(line).collect();
        lines.sort_unstable();
        lines.into_iter().for_each(|line| review.warn(line));
    }
}
/// What a request is about, for metrics: its operation, the kind of resource and the subresource.
fn about<'r>(review: &Review<'r>) -> [&'r str; 3] {
    let operation = if review.operation == Operation::Create { "create" } else { "update" };
    let resource = match path_of(review) {
        Some("") => "pod",
        Some(_) => "controller",
        None => "namespace",
    };
    [operation, resource, review.subresource.map_or("", |part| part.as_str())]
}
fn annotate_policy(review: &Review<'_>, enforce: String) {
    review.annotate("pod-security.kubernetes.io/enforce-policy", enforce);
}
fn refuse(review: &Review<'_>, namespace: &Value, errors: &[field::Error]) -> Result<(), ApiError> {
    match errors.is_empty() {
        true => Ok(()),
        false => Err(ApiError::invalid(&review.resource.group_kind(), namespace.name(), errors)),
    }
}
/// Violations as `reason (detail), …`.
fn details(found: &[Violation]) -> String {
    let one = |found: &Violation| match found.detail.is_empty() {
        true => found.reason.clone(),
        false => format!("{} ({})", found.reason, found.detail),
    };
    found.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// Whether an update of a pod changes what is checked: its images or its containers.
fn is_significant(new: &Value, old: &Value) -> bool {
    let changes = |new: &Value, old: &Value| new["image"] != old["image"];
    for member in ["containers", "initContainers"] {
        let (new, old) = (list(&new["spec"], member), list(&old["spec"], member));
        if new.len() != old.len() || new.iter().zip(old).any(|(new, old)| changes(new, old)) {
            return true;
        }
    }
    let old = list(&old["spec"], "ephemeralContainers").iter();
    let old: HashMap<&str, &Value> = old.map(|old| (text(old, "name"), old)).collect();
    list(&new["spec"], "ephemeralContainers").iter().any(|new| {
        let same = old.get(text(new, "name"));
        same.is_none_or(|old| changes(new, old))
    })
}
