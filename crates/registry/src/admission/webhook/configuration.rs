//! Webhook configurations, compiled once per version.
use crate::kind::admissionregistration::expression;
use crate::shared::Inner;
use crate::stored::tree;
use crate::webhook::{WebhookClient, WebhookClients};
use bytes::Bytes;
use parking_lot::Mutex;
use serde_json::Value;
use setpoint_cel::eval::Program;
use setpoint_object::keys;
use setpoint_object::label::Selector;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Timeout of a hook without one: ten seconds, as the API's default.
const TIMEOUT_SECONDS: u64 = 10;

/// The hooks in call order: configurations by name, each in its own order.
pub(super) type Hooks = Arc<[Arc<Hook>]>;

/// The configurations of one kind.
#[derive(Debug)]
pub(super) struct Configurations {
    prefix: String,
    clients: Arc<dyn WebhookClients>,
    state: Mutex<State>,
}
#[derive(Debug)]
struct State {
    /// The revision of the newest change that is compiled.
    at: Option<u64>,
    /// By the key of the configuration; with its revision.
    compiled: BTreeMap<Bytes, (u64, Vec<Arc<Hook>>)>,
    hooks: Hooks,
}
impl Configurations {
    pub(super) fn new(resource: &str, clients: Arc<dyn WebhookClients>) -> Self {
        let state = State { at: None, compiled: BTreeMap::new(), hooks: Arc::new([]) };
        let prefix = keys::built_in_prefix(super::OWN_GROUP, resource);
        Self { prefix, clients, state: Mutex::new(state) }
    }
    /// The present hooks.
    pub(super) fn hooks(&self, inner: &Inner) -> Hooks {
        let cache = inner.cache.resource(&self.prefix);
        // A cache that is filled again may lack hooks for a moment.
        let is_filled = inner.cache.reached().is_filled;
        let newest = cache.newest();
        let known = {
            let state = self.state.lock();
            if !is_filled || state.at == Some(newest) {
                return state.hooks.clone();
            }
            state.compiled.clone()
        };
        let (index, newest) = cache.snapshot();
        let mut compiled = BTreeMap::new();
        for item in index.range(Bound::Unbounded, Bound::Unbounded) {
            let entry = match known.get(&item.key) {
                Some((revision, hooks)) if *revision == item.revision => (*revision, hooks.clone()),
                _ => (item.revision, self.compile(&item.value)),
            };
            compiled.insert(item.key.clone(), entry);
        }
        let hooks: Hooks = compiled.values().flat_map(|(_, hooks)| hooks.iter().cloned()).collect();
        let mut state = self.state.lock();
        // Another request may have been faster, with a newer state.
        if state.at.is_none_or(|at| at <= newest) {
            *state = State { at: Some(newest), compiled, hooks };
        }
        state.hooks.clone()
    }
    fn compile(&self, stored: &Bytes) -> Vec<Arc<Hook>> {
        let configuration = match tree(stored) {
            Ok(configuration) => configuration,
            Err(error) => {
                tracing::warn!(%error, "a webhook configuration cannot be read");
                return Vec::new();
            }
        };
        let name = configuration["metadata"]["name"].as_str().unwrap_or_default();
        let hooks = configuration["webhooks"].as_array().into_iter().flatten().enumerate();
        hooks.map(|(n, hook)| Arc::new(Hook::new(name, n, hook, &*self.clients))).collect()
    }
}

/// One webhook of a configuration.
#[derive(Debug)]
pub(super) struct Hook {
    pub(super) configuration: String,
    pub(super) name: String,
    /// Differs from those of all other hooks.
    pub(super) uid: String,
    pub(super) client: Arc<dyn WebhookClient>,
    pub(super) rules: Vec<Rule>,
    /// `failurePolicy: Ignore`.
    pub(super) fails_open: bool,
    /// `matchPolicy: Exact`.
    pub(super) is_exact: bool,
    pub(super) namespaces: Result<Selector, String>,
    pub(super) objects: Result<Selector, String>,
    /// Whether a dry run may be sent to it.
    pub(super) takes_dry_runs: bool,
    pub(super) timeout: Duration,
    /// The version of AdmissionReview that it gets.
    pub(super) review_version: &'static str,
    /// `reinvocationPolicy: IfNeeded`.
    pub(super) is_reinvoked: bool,
    /// The expressions of its match conditions.
    pub(super) conditions: Vec<String>,
    compiled: OnceLock<Vec<Result<Program, String>>>,
}
/// `rules[]`.
#[derive(Debug)]
pub(super) struct Rule {
    pub(super) operations: Vec<String>,
    pub(super) groups: Vec<String>,
    pub(super) versions: Vec<String>,
    /// Resource and subresource.
    pub(super) resources: Vec<(String, String)>,
    /// `None`: both.
    pub(super) is_namespaced: Option<bool>,
}

impl Hook {
    fn new(configuration: &str, n: usize, hook: &Value, clients: &dyn WebhookClients) -> Self {
        let text = |name: &str| hook[name].as_str().unwrap_or_default();
        let name = text("name").to_owned();
        let selector = |name: &str| match Selector::from_object(&hook[name]) {
            Ok(selector) => Ok(selector.unwrap_or_default()),
            Err(error) => Err(error.to_string()),
        };
        let versions = texts(&hook["admissionReviewVersions"]);
        let is_old = versions.into_iter().find(|version| matches!(&**version, "v1" | "v1beta1"));
        let conditions = hook["matchConditions"].as_array().into_iter().flatten();
        let expression = |condition: &Value| condition["expression"].as_str().map(str::to_owned);
        Self {
            configuration: configuration.to_owned(),
            uid: format!("{configuration}/{name}/{n}"),
            name,
            client: clients.client(&hook["clientConfig"]),
            rules: hook["rules"].as_array().into_iter().flatten().map(Rule::new).collect(),
            fails_open: text("failurePolicy") == "Ignore",
            is_exact: text("matchPolicy") == "Exact",
            namespaces: selector("namespaceSelector"),
            objects: selector("objectSelector"),
            takes_dry_runs: matches!(text("sideEffects"), "None" | "NoneOnDryRun"),
            timeout: Duration::from_secs(
                hook["timeoutSeconds"].as_u64().unwrap_or(TIMEOUT_SECONDS),
            ),
            review_version: if is_old.as_deref() == Some("v1beta1") { "v1beta1" } else { "v1" },
            is_reinvoked: text("reinvocationPolicy") == "IfNeeded",
            conditions: conditions.filter_map(expression).collect(),
            compiled: OnceLock::new(),
        }
    }
    /// Whether [`Hook::programs`] has compiled them.
    pub(super) fn is_compiled(&self) -> bool {
        self.compiled.get().is_some()
    }
    /// The conditions' programs, compiled at the first call.
    pub(super) fn programs(&self) -> &[Result<Program, String>] {
        let compile = |expression: &String| expression::condition(expression);
        self.compiled.get_or_init(|| self.conditions.iter().map(compile).collect())
    }
}
impl Rule {
    fn new(rule: &Value) -> Self {
        let split = |resource: String| match resource.split_once('/') {
            Some((resource, subresource)) => (resource.to_owned(), subresource.to_owned()),
            None => (resource, String::new()),
        };
        Self {
            operations: texts(&rule["operations"]),
            groups: texts(&rule["apiGroups"]),
            versions: texts(&rule["apiVersions"]),
            resources: texts(&rule["resources"]).into_iter().map(split).collect(),
            is_namespaced: match rule["scope"].as_str() {
                Some("Namespaced") => Some(true),
                Some("Cluster") => Some(false),
                _ => None,
            },
        }
    }
}
fn texts(list: &Value) -> Vec<String> {
    let texts = list.as_array().into_iter().flatten();
    texts.filter_map(|text| text.as_str().map(str::to_owned)).collect()
}
