//! Policies and bindings as they are stored.
use super::programs::{Cache, Programs};
use crate::admission::Review;
use crate::admission::composed::Composed;
use crate::admission::followed::{Followed, GROUP};
use crate::admission::manifests::{Loaded, Manifests};
use crate::admission::matching::{Criteria, texts};
use crate::shared::Inner;
use parking_lot::Mutex;
use serde_json::Value;
use setpoint_object::label::Selector;
use setpoint_object::meta::ObjectExt;
use setpoint_object::{ApiError, GroupVersion};
use std::collections::HashMap;
use std::sync::Arc;

/// Resources of [`GROUP`] of which no policy of the API sees writes: a broken policy could not be
/// removed.
const OWN: [&str; 4] = [
    "mutatingadmissionpolicies",
    "mutatingadmissionpolicybindings",
    "validatingadmissionpolicies",
    "validatingadmissionpolicybindings",
];
/// Reviews that no policy sees: group and resource.
const REVIEWS: [(&str, &str); 6] = [
    ("authentication.k8s.io", "selfsubjectreviews"),
    ("authentication.k8s.io", "tokenreviews"),
    ("authorization.k8s.io", "localsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectrulesreviews"),
    ("authorization.k8s.io", "subjectaccessreviews"),
];

/// The policies of one kind with their bindings.
#[derive(Debug)]
pub(super) struct Policies {
    composed: Composed<Hook>,
    policies: Followed<Arc<Policy>>,
    bindings: Followed<Arc<Binding>>,
    joined: Mutex<Joined>,
    cache: Cache,
}
#[derive(Debug)]
struct Joined {
    policies: Arc<[Arc<Policy>]>,
    bindings: Arc<[Arc<Binding>]>,
    hooks: Arc<[Hook]>,
}
/// A policy that has bindings.
#[derive(Debug, Clone)]
pub(super) struct Hook {
    pub(super) policy: Arc<Policy>,
    /// By name.
    pub(super) bindings: Vec<Arc<Binding>>,
}
/// A policy.
#[derive(Debug)]
pub(super) struct Policy {
    pub(super) name: String,
    pub(super) spec: Value,
    pub(super) criteria: Criteria,
    /// `failurePolicy: Ignore`.
    pub(super) fails_open: bool,
    /// `reinvocationPolicy: IfNeeded`.
    pub(super) is_reinvoked: bool,
    /// Group, version and kind of the params.
    pub(super) param_kind: Option<(GroupVersion, String)>,
    /// The compiled expressions, while they are kept.
    pub(super) programs: Mutex<Option<Arc<Programs>>>,
}
/// A binding.
#[derive(Debug)]
pub(super) struct Binding {
    pub(super) name: String,
    policy: String,
    /// `None`: all requests that match the policy.
    criteria: Option<Criteria>,
    pub(super) params: Option<ParamRef>,
    pub(super) actions: Vec<String>,
}
/// `paramRef`.
#[derive(Debug)]
pub(super) struct ParamRef {
    /// Empty: selected by labels.
    pub(super) name: String,
    /// Empty: the namespace of the request.
    pub(super) namespace: String,
    pub(super) selector: Result<Selector, String>,
    /// `parameterNotFoundAction: Deny`.
    pub(super) must_exist: bool,
}

impl Policies {
    /// `resources`: of the policies and of their bindings.
    pub(super) fn new([policies, bindings]: [&str; 2], manifests: Option<Manifests>) -> Self {
        let joined = Joined { policies: Arc::new([]), bindings: Arc::new([]), hooks: Arc::new([]) };
        Self {
            composed: Composed::new(manifests),
            policies: Followed::new(policies),
            bindings: Followed::new(bindings),
            joined: Mutex::new(joined),
            cache: Cache::default(),
        }
    }
    /// The present policies that see writes of a resource and have bindings: those of manifests by
    /// name, then those of the API by name.
    pub(super) fn hooks(&self, review: &Review<'_>) -> Arc<[Hook]> {
        if is_review(review) {
            return Arc::default();
        }
        let compile = |loaded: &Loaded| {
            let policies = loaded.hooks.iter().map(|policy| Arc::new(Policy::new(policy.clone())));
            let bindings = loaded.bindings.iter().map(|binding| Arc::new(Binding::new(binding)));
            join(policies, bindings)
        };
        match is_own(review) {
            true => self.composed.own(compile),
            false => self.composed.all(self.stored(review.inner), compile),
        }
    }
    /// Whether all that may concern a write could be read.
    ///
    /// # Errors
    ///
    /// As [`Followed::are_known`].
    pub(super) fn are_known(&self, review: &Review<'_>) -> Result<(), ApiError> {
        if is_review(review) || is_own(review) {
            return Ok(());
        }
        self.stored(review.inner);
        self.policies.are_known(review)?;
        self.bindings.are_known(review)
    }
    /// Those of the API.
    fn stored(&self, inner: &Inner) -> Arc<[Hook]> {
        let policies = self.policies.all(inner, |policy| vec![Arc::new(Policy::new(policy))]);
        let bindings = self.bindings.all(inner, |binding| vec![Arc::new(Binding::new(&binding))]);
        {
            let joined = self.joined.lock();
            if Arc::ptr_eq(&joined.policies, &policies) && Arc::ptr_eq(&joined.bindings, &bindings)
            {
                return joined.hooks.clone();
            }
        }
        let hooks: Arc<[Hook]> = join(policies.iter().cloned(), bindings.iter().cloned()).into();
        *self.joined.lock() = Joined { policies, bindings, hooks: hooks.clone() };
        hooks
    }
    /// Whether one of them may match a write of this kind.
    pub(super) fn may_match(&self, review: &Review<'_>) -> bool {
        let hooks = self.hooks(review);
        hooks.iter().any(|hook| hook.policy.criteria.may_match(review))
            || self.are_known(review).is_err()
    }
    /// The compiled expressions of a policy.
    ///
    /// # Errors
    ///
    /// 500: the thread that compiles them has panicked.
    pub(super) async fn programs(
        &self,
        policy: &Arc<Policy>,
        review: &Review<'_>,
    ) -> Result<Arc<Programs>, ApiError> {
        let known = policy.programs.lock().clone();
        if let Some(programs) = known {
            return Ok(programs);
        }
        let compiled = policy.clone();
        let compile = async move { Arc::new(Programs::new(&compiled.spec)) };
        let programs = review.inner.threads.run(compile).await?;
        self.cache.keep(policy, &programs);
        Ok(programs)
    }
}

/// Whether a write is of a review, which no policy sees.
fn is_review(review: &Review<'_>) -> bool {
    REVIEWS.contains(&(&*review.resource.gvk.group, &*review.resource.resource))
}

/// Whether a write is of what configures policies: a broken policy of the API could not be removed
/// if it saw itself.
fn is_own(review: &Review<'_>) -> bool {
    *review.resource.gvk.group == *GROUP && OWN.contains(&&*review.resource.resource)
}

/// Policies with their bindings.
fn join(
    policies: impl Iterator<Item = Arc<Policy>>,
    bindings: impl Iterator<Item = Arc<Binding>>,
) -> Vec<Hook> {
    let mut by_policy: HashMap<String, Vec<Arc<Binding>>> = HashMap::new();
    for binding in bindings {
        by_policy.entry(binding.policy.clone()).or_default().push(binding);
    }
    let hook = |policy: Arc<Policy>| {
        let bindings = by_policy.remove(&policy.name)?;
        Some(Hook { policy, bindings })
    };
    policies.filter_map(hook).collect()
}

impl Policy {
    pub(super) fn new(mut object: Value) -> Self {
        let spec = object["spec"].take();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let kind = &spec["paramKind"];
        let version = GroupVersion::parse(kind["apiVersion"].as_str().unwrap_or_default());
        Self {
            name: object.name().to_owned(),
            criteria: Criteria::of_policy(&spec["matchConstraints"]),
            fails_open: spec["failurePolicy"] == "Ignore",
            is_reinvoked: spec["reinvocationPolicy"] == "IfNeeded",
            param_kind: version.map(|version| (version, text(&kind["kind"]))),
            programs: Mutex::default(),
            spec,
        }
    }
}

impl Binding {
    fn new(object: &Value) -> Self {
        let spec = &object["spec"];
        let resources = Some(&spec["matchResources"]).filter(|resources| resources.is_object());
        Self {
            name: object.name().to_owned(),
            policy: spec["policyName"].as_str().unwrap_or_default().to_owned(),
            criteria: resources.map(Criteria::of_policy),
            params: Some(&spec["paramRef"]).filter(|r| r.is_object()).map(ParamRef::new),
            actions: texts(&spec["validationActions"]),
        }
    }
    /// Whether a request that matches the policy matches the binding.
    ///
    /// # Errors
    ///
    /// As [`Criteria::matches`].
    pub(super) async fn matches(
        &self,
        review: &Review<'_>,
        object: Option<&Value>,
        name: &str,
    ) -> Result<bool, ApiError> {
        match &self.criteria {
            Some(criteria) => Ok(criteria.matches(review, object, name).await?.is_some()),
            None => Ok(true),
        }
    }
}

impl ParamRef {
    fn new(reference: &Value) -> Self {
        let text = |name: &str| reference[name].as_str().unwrap_or_default().to_owned();
        let selector = Selector::from_object(&reference["selector"]);
        Self {
            name: text("name"),
            namespace: text("namespace"),
            selector: selector.map(Option::unwrap_or_default).map_err(|e| e.to_string()),
            must_exist: text("parameterNotFoundAction") == "Deny",
        }
    }
}
