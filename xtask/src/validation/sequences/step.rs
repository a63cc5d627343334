//! The next request of a sequence.

use crate::validation::bases::Base;
use crate::validation::change::{Change, Changer, merge_patch};
use crate::validation::write::Write;
use serde_json::{Map, Value, json};

/// Who applies, and who writes otherwise.
const APPLIERS: &[&str] = &["one", "two", "three"];
const WRITERS: &[&str] = &["writer", "other"];

/// How often a step's changes are drawn again if none had a place.
const DRAWS_MAX: usize = 5;
/// How deep a patch is searched for a place for a directive.
const DEPTH_MAX: usize = 4;

/// A request.
#[derive(Clone, Debug)]
pub(super) struct Step {
    pub(super) query: String,
    pub(super) body: Body,
    pub(super) kind: Write,
    /// `status` or `scale`; empty: the object itself.
    subresource: &'static str,
}

/// What is sent.
#[derive(Clone, Debug)]
pub(super) enum Body {
    /// The same to both; `null` is no body.
    Same(Value),
    /// The server's own object, with changes.
    Changed {
        changes: Vec<Change>,
        /// Whether it has the resourceVersion that was read.
        is_versioned: bool,
    },
}

impl Step {
    pub(super) fn name(&self) -> String {
        self.kind.name_of(self.subresource)
    }

    /// Whether it is sent to the collection.
    pub(super) fn is_create(&self) -> bool {
        self.kind == Write::Create
    }

    /// What follows the object's path.
    pub(super) fn subresource(&self) -> String {
        match self.subresource {
            "" => String::new(),
            subresource => format!("/{subresource}"),
        }
    }

    /// The texts that were asked for, with the name: all else in an answer is the server's.
    pub(super) fn asked(&self, base: &Base) -> Value {
        let asked = match &self.body {
            Body::Same(body) => body.clone(),
            Body::Changed { changes, .. } => {
                changes.iter().filter_map(|change| change.value.clone()).collect()
            }
        };
        json!({"metadata": {"name": base.fixture["metadata"]["name"]}, "asked": asked})
    }

    /// One line.
    pub(super) fn show(&self) -> String {
        let short = |text: String| text.chars().take(160).collect::<String>();
        let body = match &self.body {
            Body::Same(Value::Null) => String::new(),
            Body::Same(body) => short(body.to_string()),
            Body::Changed { changes, .. } => {
                changes.iter().map(Change::show).collect::<Vec<_>>().join("; ")
            }
        };
        let what = format!("{} {}{} {body}", self.kind.method(), self.subresource(), self.query);
        what.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    /// Whether it changes an object by an empty list or an empty map.
    pub(super) fn gives_empty(&self) -> bool {
        fn has_empty(value: &Value) -> bool {
            match value {
                Value::Array(items) => items.is_empty() || items.iter().any(has_empty),
                Value::Object(members) => members.is_empty() || members.values().any(has_empty),
                _ => false,
            }
        }
        match &self.body {
            _ if matches!(self.kind, Write::Create | Write::Apply | Write::Delete) => false,
            Body::Same(body) => has_empty(body),
            Body::Changed { changes, .. } => {
                changes.iter().filter_map(|change| change.value.as_ref()).any(has_empty)
            }
        }
    }

    /// The whole body, of a request that is the same to both.
    pub(super) fn whole(&self) -> String {
        match &self.body {
            Body::Same(body) => body.to_string(),
            Body::Changed { .. } => String::new(),
        }
    }
}

/// Draws a request. `stored`: the object, if it is there.
pub(super) fn draw(changer: &mut Changer<'_>, base: &Base, stored: Option<&Value>) -> Step {
    let kind = match (changer.random.below(100), stored) {
        (0..55, None) | (0..2, Some(_)) => Write::Create,
        (55..85, None) | (2..32, Some(_)) => Write::Apply,
        (85..92, None) | (32..52, Some(_)) => Write::Put,
        (92..96, None) | (52..64, Some(_)) => Write::Merge,
        (64..76, Some(_)) => Write::Json,
        (76..91, Some(_)) => Write::Strategic,
        _ => Write::Delete,
    };
    let mut step =
        Step { query: String::new(), body: Body::Same(Value::Null), kind, subresource: "" };
    if let (Some(_), false) = (stored, matches!(kind, Write::Create | Write::Delete)) {
        step.subresource = match changer.random.below(100) {
            0..18 if base.has_status() => "status",
            18..28 if base.serves("scale") => "scale",
            _ => "",
        };
    }
    step.query = query(changer, kind);
    step.body = match (kind, step.subresource) {
        (Write::Delete, _) => Body::Same(delete_options(changer)),
        (_, "scale") => scale(changer, base, kind),
        (Write::Create, _) => Body::Same(changed(changer, base, &base.fixture, "").0),
        (Write::Apply, part) => Body::Same(applied(changer, base, stored, part)),
        (Write::Put, part) => {
            let changes = changed(changer, base, stored.unwrap_or(&base.fixture), part).1;
            Body::Changed { changes, is_versioned: changer.random.percent(60) }
        }
        (Write::Json, part) => {
            let object = stored.unwrap_or(&base.fixture);
            let changes = changed(changer, base, object, part).1;
            Body::Same(json_patch(changer, object, &changes))
        }
        (_, part) => {
            let object = stored.unwrap_or(&base.fixture);
            let new = changed(changer, base, object, part).0;
            let mut patch = merge_patch(object, &new);
            if kind == Write::Strategic && changer.random.percent(20) {
                directive(changer, &mut patch, 0);
            }
            Body::Same(patch)
        }
    };
    step
}

/// The options in the URL.
fn query(changer: &mut Changer<'_>, kind: Write) -> String {
    let random = &mut changer.random;
    let mut options = Vec::new();
    if kind == Write::Apply {
        let manager = random.pick(APPLIERS).copied().unwrap_or_default();
        options.push(format!("fieldManager={manager}"));
        if random.percent(40) {
            options.push("force=true".to_owned());
        }
    } else if kind != Write::Delete {
        let manager = random.pick(WRITERS).copied().unwrap_or_default();
        options.push(format!("fieldManager={manager}"));
    }
    if random.percent(5) {
        options.push("dryRun=All".to_owned());
    }
    if kind != Write::Delete && random.percent(15) {
        let level = ["Strict", "Warn", "Ignore"][random.below(3)];
        options.push(format!("fieldValidation={level}"));
    }
    if options.is_empty() { String::new() } else { format!("?{}", options.join("&")) }
}

fn delete_options(changer: &mut Changer<'_>) -> Value {
    let random = &mut changer.random;
    let mut options = Map::new();
    if random.percent(30) {
        let policy = ["Orphan", "Background", "Foreground", "Other"][random.below(4)];
        options.insert("propagationPolicy".to_owned(), policy.into());
    }
    if random.percent(30) {
        let seconds = [0, 1, 30, -1][random.below(4)];
        options.insert("gracePeriodSeconds".to_owned(), seconds.into());
    }
    if random.percent(10) {
        let wrong = [json!({"uid": "other"}), json!({"resourceVersion": "1"})];
        options.insert("preconditions".to_owned(), wrong[random.below(2)].clone());
    }
    if options.is_empty() { Value::Null } else { options.into() }
}

/// An object with one to three changes at its status, or elsewhere.
fn changed(
    changer: &mut Changer<'_>,
    base: &Base,
    object: &Value,
    part: &str,
) -> (Value, Vec<Change>) {
    let is_any = changer.random.percent(10);
    let wanted = |pointer: &str| {
        let is_status = pointer.starts_with("/status");
        !matches!(pointer, "/metadata" | "/metadata/name" | "/metadata/namespace")
            && (is_any || is_status == (part == "status"))
    };
    for _ in 0..DRAWS_MAX {
        let changes = changer.changes(object, base.ty, wanted);
        if changes.is_empty() {
            continue;
        }
        let mut new = object.clone();
        if changes.iter().all(|change| change.apply(&mut new)) {
            return (new, changes);
        }
    }
    (object.clone(), Vec::new())
}

/// A part of the object, sometimes with changes, as a manager applies it.
fn applied(changer: &mut Changer<'_>, base: &Base, stored: Option<&Value>, part: &str) -> Value {
    let from = match stored {
        // What others have written, too.
        Some(stored) if changer.random.percent(30) => stored,
        _ => &base.fixture,
    };
    let object = match changer.random.percent(50) {
        true => changed(changer, base, from, part).0,
        false => from.clone(),
    };
    let of = |member: &str| base.fixture[member].clone();
    let mut meta = Map::new();
    for member in ["labels", "annotations", "finalizers", "ownerReferences"] {
        if let Some(value) = object["metadata"].get(member)
            && changer.random.percent(50)
        {
            meta.insert(member.to_owned(), value.clone());
        }
    }
    meta.insert("name".to_owned(), base.fixture["metadata"]["name"].clone());
    let mut applied = Map::new();
    applied.insert("apiVersion".to_owned(), of("apiVersion"));
    applied.insert("kind".to_owned(), of("kind"));
    applied.insert("metadata".to_owned(), meta.into());
    for (member, value) in object.as_object().into_iter().flatten() {
        let is_status = member == "status";
        let is_wanted = is_status == (part == "status") || changer.random.percent(3);
        if matches!(&**member, "apiVersion" | "kind" | "metadata") || !is_wanted {
            continue;
        }
        let chance = if stored.is_some() { 60 } else { 90 };
        match value {
            Value::Object(members) => {
                let some = members.iter().filter(|_| changer.random.percent(chance));
                let some: Map<_, _> =
                    some.map(|(name, value)| (name.clone(), value.clone())).collect();
                applied.insert(member.clone(), some.into());
            }
            value if changer.random.percent(chance) => {
                applied.insert(member.clone(), value.clone());
            }
            _ => {}
        }
    }
    applied.into()
}

fn scale(changer: &mut Changer<'_>, base: &Base, kind: Write) -> Body {
    let replicas = [0, 1, 2, 5, -1][changer.random.below(5)];
    Body::Same(kind.scale(&base.fixture["metadata"]["name"], replicas.into()))
}

/// The operations of changes, sometimes after a test of what is there.
fn json_patch(changer: &mut Changer<'_>, object: &Value, changes: &[Change]) -> Value {
    let mut operations = Vec::new();
    for Change { pointer, value } in changes {
        let old = object.pointer(pointer);
        if changer.random.percent(15) {
            operations.push(json!({"op": "test", "path": pointer, "value": old}));
        }
        operations.push(match value {
            None => json!({"op": "remove", "path": pointer}),
            Some(value) => {
                let op = match (old, changer.random.percent(70)) {
                    (Some(_), true) => "replace",
                    _ => "add",
                };
                json!({"op": op, "path": pointer, "value": value})
            }
        });
    }
    operations.into()
}

/// Puts a directive of strategic merge patches somewhere.
fn directive(changer: &mut Changer<'_>, patch: &mut Value, depth: usize) {
    let random = &mut changer.random;
    match patch {
        Value::Object(members) => {
            let keys: Vec<String> = members
                .iter()
                .filter(|(_, value)| value.is_object() || value.is_array())
                .map(|(key, _)| key.clone())
                .collect();
            if depth < DEPTH_MAX
                && random.percent(75)
                && let Some(key) = random.pick(&keys)
            {
                directive(changer, &mut members[key], depth + 1);
                return;
            }
            let names: Vec<Value> = members.keys().cloned().map(Value::from).collect();
            match random.below(10) {
                0..3 => members.insert("$patch".to_owned(), "replace".into()),
                3..6 => members.insert("$patch".to_owned(), "delete".into()),
                6 => members.insert("$patch".to_owned(), "merge".into()),
                7 => members.insert("$patch".to_owned(), "other".into()),
                _ => members.insert("$retainKeys".to_owned(), names.into()),
            };
        }
        Value::Array(items) => {
            let at = random.below(items.len());
            match items.get_mut(at) {
                Some(item) if item.is_object() => directive(changer, item, depth + 1),
                _ => items.push(json!({"$patch": "replace"})),
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::validation::bases::{Material, bases};
    use crate::validation::random::Random;

    #[test]
    fn steps_are_a_function_of_the_seed_and_applies_name_their_object() {
        let bases = bases(None).unwrap();
        let material = Material::of(&bases);
        let steps = |seed| {
            let mut shown = Vec::new();
            for (number, base) in bases.iter().enumerate() {
                let random = Random::new(seed, number);
                let mut changer = Changer { material: &material, random };
                for is_there in [false, true, true, true] {
                    let step = draw(&mut changer, base, is_there.then_some(&base.fixture));
                    if let (Write::Apply, Body::Same(body)) = (step.kind, &step.body) {
                        let name = &base.fixture["metadata"]["name"];
                        assert_eq!(&body["metadata"]["name"], name, "{}", base.title());
                    }
                    shown.push(format!("{} {} {}", step.name(), step.show(), step.whole()));
                }
            }
            shown
        };
        assert_eq!(steps(1), steps(1));
        assert_ne!(steps(1), steps(2));
    }
}
