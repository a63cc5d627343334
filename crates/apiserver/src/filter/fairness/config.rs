//! FlowSchemas and PriorityLevelConfigurations, compiled.

use super::scheduler::{LevelId, Limits, Response};
use super::stats::Stats;
use http::HeaderValue;
use serde_json::Value;
use setpoint_object::error::chain;
use setpoint_object::meta::ObjectExt;
use setpoint_object::users;
use setpoint_registry::{Attributes, Identity, StoredObject, Subresource};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// The level and the schema of `system:masters`, which always exist.
pub(super) const EXEMPT: &str = "exempt";
/// The level and the schema of requests that no other schema matches, which always exist.
pub(super) const CATCH_ALL: &str = "catch-all";
/// The shares of [`CATCH_ALL`], if its object does not exist.
const CATCH_ALL_SHARES: u64 = 5;
/// Maximum requests that wait in one queue, whatever the level says. Ten thousand: far more than
/// can be served within the time that a request waits.
const QUEUE_LENGTH_MAX: u64 = 10_000;

/// Maximum seats of a request of any level, as in kube-apiserver.
const WIDTH_MAX: u32 = 10;
/// The part of its level's nominal seats that a request may have, in percent, as in kube-apiserver.
const WIDTH_PERCENT_MAX: u32 = 15;

/// The schemas in the order in which they are tried, and the levels.
#[derive(Debug)]
pub(super) struct Config {
    /// The revisions of the newest changes of schemas and levels; `None`: nothing is known yet.
    pub(super) at: Option<(u64, u64)>,
    pub(super) schemas: Vec<Arc<Schema>>,
    pub(super) levels: Vec<Level>,
}

/// A level.
#[derive(Debug, Clone)]
pub(super) struct Level {
    pub(super) name: Arc<str>,
    pub(super) uid: HeaderValue,
    /// The position in the scheduler; `None`: requests run at once.
    pub(super) id: Option<LevelId>,
    pub(super) limits: Limits,
}

/// A schema whose level exists.
#[derive(Debug)]
pub(crate) struct Schema {
    pub(super) name: Arc<str>,
    precedence: i64,
    pub(super) level_name: Arc<str>,
    /// The position of the level in the scheduler; `None`: requests run at once.
    pub(super) level: Option<LevelId>,
    /// Maximum seats of a request.
    pub(super) width_max: u32,
    /// The values of the headers.
    pub(super) schema_uid: HeaderValue,
    pub(super) level_uid: HeaderValue,
    distinguisher: Distinguisher,
    rules: Vec<Rule>,
    pub(super) stats: Arc<Stats>,
}

/// What distinguishes the flows of a schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Distinguisher {
    /// All requests are one flow.
    None,
    User,
    Namespace,
}

#[derive(Debug)]
struct Rule {
    subjects: Vec<Subject>,
    resources: Vec<ResourceRule>,
    paths: Vec<PathRule>,
}

#[derive(Debug)]
enum Subject {
    User(String),
    Group(String),
    /// The start of the user name of an account, and its name.
    Account(String, String),
}

#[derive(Debug)]
struct ResourceRule {
    verbs: Words,
    groups: Words,
    resources: Words,
    namespaces: Words,
    is_cluster: bool,
}

#[derive(Debug)]
struct PathRule {
    verbs: Words,
    paths: Words,
}

/// A list of words of a rule.
#[derive(Debug)]
enum Words {
    /// It has `*`, which stands for all words.
    All,
    These(Box<[Box<str>]>),
}

impl Config {
    /// Compiles the objects. `position` gives each level with seats its position in the scheduler,
    /// `stats` each schema its figures.
    pub(super) fn compile(
        at: Option<(u64, u64)>,
        schemas: &[StoredObject],
        levels: &[StoredObject],
        seats: u32,
        mut position: impl FnMut(&Arc<str>) -> LevelId,
        mut stats: impl FnMut(&Arc<str>, &Arc<str>) -> Arc<Stats>,
    ) -> Self {
        let mut levels: Vec<(Value, u64)> = trees(levels).map(|level| (level, 0)).collect();
        for (name, spec) in [
            (EXEMPT, serde_json::json!({"type": "Exempt"})),
            (
                CATCH_ALL,
                serde_json::json!({"type": "Limited", "limited": {
                    "nominalConcurrencyShares": CATCH_ALL_SHARES, "limitResponse": {"type": "Reject"},
                }}),
            ),
        ] {
            if !levels.iter().any(|(level, _)| level.name() == name) {
                levels.push((serde_json::json!({"metadata": {"name": name}, "spec": spec}), 0));
            }
        }
        for (level, shares) in &mut levels {
            *shares = settings(level)["nominalConcurrencyShares"].as_u64().unwrap_or_default();
        }
        let all: Vec<u64> = levels.iter().map(|(_, shares)| *shares).collect();
        let nominal = divide(seats, &all);
        let levels: Vec<Level> = levels
            .iter()
            .zip(nominal)
            .map(|((level, _), nominal)| {
                let name: Arc<str> = level.name().into();
                let is_exempt = level["spec"]["type"] == "Exempt";
                Level {
                    id: (!is_exempt).then(|| position(&name)),
                    limits: limits(settings(level), nominal, seats),
                    uid: header(level),
                    name,
                }
            })
            .collect();
        let mut compiled: Vec<Arc<Schema>> = trees(schemas)
            .chain([EXEMPT, CATCH_ALL].map(mandatory))
            .filter_map(|schema| Schema::compile(&schema, &levels, &mut stats).map(Arc::new))
            .collect();
        compiled.sort_by(|a, b| (a.precedence, &a.name).cmp(&(b.precedence, &b.name)));
        // The objects of the mandatory ones come first: the sort is stable.
        compiled.dedup_by(|a, b| a.name == b.name);
        Self { at, schemas: compiled, levels }
    }

    /// The schema of a request: the first that matches, or else [`CATCH_ALL`].
    pub(super) fn classify(&self, request: &Attributes) -> Option<&Arc<Schema>> {
        let found = self.schemas.iter().find(|schema| schema.matches(request));
        found.or_else(|| self.schemas.iter().find(|schema| *schema.name == *CATCH_ALL))
    }
}

impl Schema {
    /// `None`: its level does not exist.
    fn compile(
        schema: &Value,
        levels: &[Level],
        stats: &mut impl FnMut(&Arc<str>, &Arc<str>) -> Arc<Stats>,
    ) -> Option<Self> {
        let spec = &schema["spec"];
        let level = spec["priorityLevelConfiguration"]["name"].as_str()?;
        let level = levels.iter().find(|known| *known.name == *level)?;
        let name: Arc<str> = schema.name().into();
        Some(Self {
            stats: stats(&name, &level.name),
            precedence: spec["matchingPrecedence"].as_i64().unwrap_or(i64::MAX),
            level_name: level.name.clone(),
            level: level.id,
            width_max: width_max(&level.limits),
            schema_uid: header(schema),
            level_uid: level.uid.clone(),
            distinguisher: match spec["distinguisherMethod"]["type"].as_str() {
                Some("ByUser") => Distinguisher::User,
                Some("ByNamespace") => Distinguisher::Namespace,
                _ => Distinguisher::None,
            },
            rules: list(&spec["rules"]).iter().map(Rule::compile).collect(),
            name,
        })
    }

    fn matches(&self, request: &Attributes) -> bool {
        self.rules.iter().any(|rule| rule.matches(request))
    }

    /// What distinguishes the request's flow from others of the schema.
    pub(super) fn distinguisher<'a>(&self, request: &'a Attributes) -> &'a str {
        match self.distinguisher {
            Distinguisher::None => "",
            Distinguisher::User => &request.identity.user,
            Distinguisher::Namespace => request.scope(),
        }
    }

    /// The hash of the request's flow: the same for the same flow, also after a restart.
    pub(super) fn flow(&self, request: &Attributes) -> u64 {
        let mut hasher = DefaultHasher::new();
        (&*self.name, self.distinguisher(request)).hash(&mut hasher);
        hasher.finish()
    }
}

/// Maximum seats of a request of a level: requests in all queues of a flow fit at once.
fn width_max(limits: &Limits) -> u32 {
    let of_level = limits.nominal.saturating_mul(WIDTH_PERCENT_MAX).div_ceil(100);
    let of_hand = match limits.response {
        Response::Queue { hand, .. } => limits.nominal / hand.max(1),
        Response::Reject => limits.nominal,
    };
    WIDTH_MAX.min(of_level).min(of_hand).max(1)
}

impl Rule {
    fn compile(rule: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let subject = |subject: &Value| match subject["kind"].as_str()? {
            "User" => Some(Subject::User(text(&subject["user"]["name"]))),
            "Group" => Some(Subject::Group(text(&subject["group"]["name"]))),
            _ => {
                let account = subject.get("serviceAccount")?;
                let namespace = text(&account["namespace"]);
                let start = users::service_account(&namespace, "");
                Some(Subject::Account(start, text(&account["name"])))
            }
        };
        let resource = |rule: &Value| ResourceRule {
            verbs: Words::of(&rule["verbs"]),
            groups: Words::of(&rule["apiGroups"]),
            resources: Words::of(&rule["resources"]),
            namespaces: Words::of(&rule["namespaces"]),
            is_cluster: rule["clusterScope"] == true,
        };
        let path = |rule: &Value| PathRule {
            verbs: Words::of(&rule["verbs"]),
            paths: Words::of(&rule["nonResourceURLs"]),
        };
        Self {
            subjects: list(&rule["subjects"]).iter().filter_map(subject).collect(),
            resources: list(&rule["resourceRules"]).iter().map(resource).collect(),
            paths: list(&rule["nonResourceRules"]).iter().map(path).collect(),
        }
    }

    fn matches(&self, request: &Attributes) -> bool {
        let is_about = || match request.is_resource() {
            true => self.resources.iter().any(|rule| rule.matches(request)),
            false => self.paths.iter().any(|rule| rule.matches(request)),
        };
        self.subjects.iter().any(|subject| subject.matches(&request.identity)) && is_about()
    }
}

impl Subject {
    fn matches(&self, identity: &Identity) -> bool {
        match self {
            Self::User(name) => name == "*" || *identity.user == **name,
            Self::Group(name) => name == "*" || identity.is_in(name),
            Self::Account(start, name) => {
                identity.user.strip_prefix(&**start).is_some_and(|own| name == "*" || own == name)
            }
        }
    }
}

impl ResourceRule {
    fn matches(&self, request: &Attributes) -> bool {
        self.verbs.has(request.verb.as_str())
            && self.groups.has(request.group())
            && self.has_resource(request)
            && match request.scope() {
                "" => self.is_cluster,
                namespace => self.namespaces.has(namespace),
            }
    }

    /// A subresource has a name of its own: `pods/status`.
    fn has_resource(&self, request: &Attributes) -> bool {
        let subresource = request.subresource().map(Subresource::as_str);
        self.resources.any(|wanted| match (wanted.strip_prefix(request.resource()), subresource) {
            (Some(""), None) => true,
            (Some(rest), Some(sub)) => rest.strip_prefix('/') == Some(sub),
            _ => false,
        })
    }
}

impl PathRule {
    fn matches(&self, request: &Attributes) -> bool {
        let path = request.path();
        self.verbs.has(request.verb.as_str())
            && self.paths.any(|wanted| wanted == path || is_below(path, wanted))
    }
}

/// Whether a path is below that of a rule, which may end with a star or not.
fn is_below(path: &str, wanted: &str) -> bool {
    let start = wanted.strip_suffix('*').unwrap_or(wanted);
    let start = start.strip_suffix('/').unwrap_or(start);
    path.strip_prefix(start).is_some_and(|rest| rest.starts_with('/'))
}

impl Words {
    fn of(value: &Value) -> Self {
        let words = || list(value).iter().filter_map(Value::as_str);
        match words().any(|word| word == "*") {
            true => Self::All,
            false => Self::These(words().map(Box::from).collect()),
        }
    }

    fn has(&self, wanted: &str) -> bool {
        self.any(|word| word == wanted)
    }

    /// Whether a word matches.
    fn any(&self, matches: impl Fn(&str) -> bool) -> bool {
        match self {
            Self::All => true,
            Self::These(words) => words.iter().any(|word| matches(word)),
        }
    }
}

fn trees(objects: &[StoredObject]) -> impl Iterator<Item = Value> {
    objects.iter().filter_map(|object| match serde_json::from_slice(&object.value) {
        Ok(tree) => Some(tree),
        Err(error) => {
            tracing::warn!(error = chain(&error), "a flow control object cannot be read");
            None
        }
    })
}

/// The schema that takes everything to the level of the same name, for when its object is missing.
fn mandatory(name: &str) -> Value {
    let group = |name: &str| serde_json::json!({"kind": "Group", "group": {"name": name}});
    let (precedence, subjects) = match name {
        EXEMPT => (1, vec![group(users::MASTERS)]),
        _ => (10_000, vec![group(users::UNAUTHENTICATED), group(users::AUTHENTICATED)]),
    };
    serde_json::json!({
        "metadata": {"name": name},
        "spec": {
            "matchingPrecedence": precedence,
            "priorityLevelConfiguration": {"name": name},
            "distinguisherMethod": {"type": "ByUser"},
            "rules": [{
                "subjects": subjects,
                "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"],
                    "namespaces": ["*"], "clusterScope": true}],
                "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
            }],
        },
    })
}

/// A level's settings, whichever type it has.
fn settings(level: &Value) -> &Value {
    let spec = &level["spec"];
    if spec["type"] == "Exempt" { &spec["exempt"] } else { &spec["limited"] }
}

/// The limits of a level that has `nominal` of all `seats`.
fn limits(settings: &Value, nominal: u32, seats: u32) -> Limits {
    // At most so many of the nominal seats; half a seat is rounded up, as in kube-apiserver.
    let part = |percent: u64| {
        let seats = (u64::from(nominal) * percent + 50) / 100;
        u32::try_from(seats).unwrap_or(u32::MAX)
    };
    let lendable = part(settings["lendablePercent"].as_u64().unwrap_or_default().min(100));
    let max = match settings["borrowingLimitPercent"].as_u64() {
        Some(percent) => nominal.saturating_add(part(percent.min(u64::from(u32::MAX)))),
        None => u32::MAX,
    };
    let response = &settings["limitResponse"];
    let queuing = |member: &str| response["queuing"][member].as_u64().unwrap_or(1).max(1);
    let small = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
    Limits {
        nominal,
        min: nominal.saturating_sub(lendable),
        max: max.min(seats.max(nominal)),
        response: match response["type"].as_str() {
            Some("Queue") => Response::Queue {
                queues: small(queuing("queues")),
                hand: small(queuing("handSize")),
                length: queuing("queueLengthLimit").min(QUEUE_LENGTH_MAX) as usize,
            },
            _ => Response::Reject,
        },
    }
}

/// Divides seats by shares. Their sum is `seats`, except that every share has at least one seat.
fn divide(seats: u32, shares: &[u64]) -> Vec<u32> {
    let sum: u128 = shares.iter().map(|share| u128::from(*share)).sum::<u128>().max(1);
    let exact = |share: u64| (u128::from(share) * u128::from(seats), sum);
    let mut parts: Vec<u32> = shares
        .iter()
        .map(|share| {
            let (product, sum) = exact(*share);
            u32::try_from(product / sum).unwrap_or(u32::MAX)
        })
        .collect();
    // The rest is added to the largest remainders.
    let mut order: Vec<usize> = (0..shares.len()).filter(|n| shares[*n] > 0).collect();
    order.sort_by_key(|n| {
        let (product, sum) = exact(shares[*n]);
        (std::cmp::Reverse(product % sum), *n)
    });
    let given: u32 = parts.iter().sum();
    for n in order.iter().take(seats.saturating_sub(given) as usize) {
        parts[*n] += 1;
    }
    for n in order {
        parts[n] = parts[n].max(1);
    }
    parts
}

fn header(object: &Value) -> HeaderValue {
    HeaderValue::from_str(object.uid()).unwrap_or(HeaderValue::from_static(""))
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests;
