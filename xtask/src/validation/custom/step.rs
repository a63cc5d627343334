//! The next request about a custom resource.

use super::schema::Definition;
use super::values;
use crate::validation::change::{Change, merge_patch};
use crate::validation::random::Random;
use crate::validation::write::Write;
use serde_json::{Map, Value, json};

const APPLIERS: &[&str] = &["one", "two", "three"];
const WRITERS: &[&str] = &["writer", "other"];

/// The object's name.
pub(super) const NAME: &str = "one";

/// A request.
#[derive(Clone, Debug)]
pub(super) struct Step {
    pub(super) kind: Write,
    /// The version that it is sent to.
    pub(super) version: String,
    pub(super) subresource: &'static str,
    pub(super) query: String,
    pub(super) body: Body,
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
    /// Another definition, by a patch of its versions.
    Definition(Box<Definition>),
}

impl Step {
    pub(super) fn verb(&self) -> &'static str {
        match self.body {
            Body::Definition(_) => "change of the definition",
            _ => self.kind.name(),
        }
    }

    pub(super) fn name(&self) -> String {
        match self.body {
            Body::Definition(_) => self.verb().to_owned(),
            _ => self.kind.name_of(self.subresource),
        }
    }

    pub(super) fn path(&self, definition: &Definition) -> String {
        let collection = definition.collection(&self.version);
        let slash = if self.subresource.is_empty() { "" } else { "/" };
        match self.kind {
            Write::Create => format!("{collection}{}", self.query),
            _ => format!("{collection}/{NAME}{slash}{}{}", self.subresource, self.query),
        }
    }

    /// The texts that were asked for: all else in an answer is the server's.
    pub(super) fn asked(&self) -> Value {
        let asked = match &self.body {
            Body::Same(body) => body.clone(),
            Body::Changed { changes, .. } => {
                changes.iter().filter_map(|change| change.value.clone()).collect()
            }
            Body::Definition(_) => Value::Null,
        };
        json!({"metadata": {"name": NAME}, "asked": asked})
    }

    /// One line.
    pub(super) fn show(&self) -> String {
        let body = match &self.body {
            Body::Same(Value::Null) => String::new(),
            Body::Same(body) => body.to_string(),
            Body::Changed { changes, .. } => {
                changes.iter().map(Change::show).collect::<Vec<_>>().join("; ")
            }
            Body::Definition(new) => new.object["spec"]["versions"].to_string(),
        };
        format!("{} {} {} {body}", self.name(), self.version, self.query)
    }
}

/// Draws a request. `stored`: the object in each version, if it is there.
pub(super) fn draw(
    random: &mut Random,
    definition: &Definition,
    stored: Option<&[(String, Value)]>,
) -> Step {
    let drawn = random.below(100);
    let kind = match (drawn, stored) {
        (0..60, None) | (0..2, Some(_)) => Write::Create,
        (60..92, None) | (2..36, Some(_)) => Write::Apply,
        (92..96, None) | (36..58, Some(_)) => Write::Put,
        (96..98, None) | (58..74, Some(_)) => Write::Merge,
        (74..87, Some(_)) => Write::Json,
        (87, Some(_)) => Write::Strategic,
        (88..94, Some(_)) => Write::Merge,
        _ => Write::Delete,
    };
    let versions = definition.versions();
    let version = random.pick(&versions).cloned().unwrap_or_default();
    let mut step = Step {
        kind,
        version,
        subresource: "",
        query: String::new(),
        body: Body::Same(Value::Null),
    };
    if stored.is_some() && (88..94).contains(&drawn) {
        step.body = Body::Definition(Box::new(definition.changed(random)));
        return step;
    }
    if stored.is_some() && !matches!(kind, Write::Create | Write::Delete) {
        step.subresource = match random.below(100) {
            0..22 if definition.serves("status") => "status",
            22..30 if definition.serves("scale") => "scale",
            _ => "",
        };
    }
    let schema = definition.schema(&step.version);
    let is_status = step.subresource == "status" || random.percent(4);
    let mut stored = stored.into_iter().flatten();
    let stored = stored.find(|(name, _)| *name == step.version).map(|(_, object)| object);
    let fresh = |random: &mut Random| fresh(random, definition, &step.version);
    let body = match (kind, step.subresource) {
        (Write::Delete, _) => Body::Same(delete_options(random)),
        (_, "scale") => Body::Same(scale(random, kind)),
        (Write::Create, _) => {
            let mut object = fresh(random);
            if random.percent(50) {
                for change in values::changes(random, &object, schema, is_status) {
                    change.apply(&mut object);
                }
            }
            Body::Same(object)
        }
        (Write::Apply, part) => {
            let mut object = match stored {
                // What others have written, too.
                Some(stored) if random.percent(30) => part_of(random, stored),
                _ => fresh(random),
            };
            if random.percent(25) {
                for change in values::changes(random, &object, schema, is_status) {
                    change.apply(&mut object);
                }
            }
            if let Some(members) = object.as_object_mut() {
                let other = if part == "status" { "spec" } else { "status" };
                if random.percent(85) {
                    members.remove(other);
                }
            }
            Body::Same(object)
        }
        (Write::Put, _) => {
            let from = stored.cloned().unwrap_or_else(|| fresh(random));
            let changes = values::changes(random, &from, schema, is_status);
            match stored {
                Some(_) => Body::Changed { changes, is_versioned: random.percent(60) },
                None => Body::Same(from),
            }
        }
        (Write::Json, _) => {
            let from = stored.cloned().unwrap_or_else(|| fresh(random));
            let changes = values::changes(random, &from, schema, is_status);
            Body::Same(json_patch(random, &from, &changes))
        }
        _ => {
            let from = stored.cloned().unwrap_or_else(|| fresh(random));
            let mut new = from.clone();
            for change in values::changes(random, &from, schema, is_status) {
                change.apply(&mut new);
            }
            Body::Same(merge_patch(&from, &new))
        }
    };
    step.body = body;
    step.query = query(random, kind);
    step
}

/// A new object.
fn fresh(random: &mut Random, definition: &Definition, version: &str) -> Value {
    let mut object = values::valid(random, definition.schema(version), 0);
    object["apiVersion"] = format!("{}/{version}", definition.group()).into();
    object["kind"] = "Thing".into();
    object["metadata"] = json!({"name": NAME});
    if random.percent(15) {
        object["metadata"]["labels"] = json!({"a": "b"});
    }
    if let Some(members) = object.as_object_mut() {
        members.retain(|name, _| !name.starts_with("mark"));
    }
    object
}

/// Some members of an object, as a manager applies them.
fn part_of(random: &mut Random, object: &Value) -> Value {
    let mut part = json!({
        "apiVersion": object["apiVersion"], "kind": object["kind"], "metadata": {"name": NAME},
    });
    for (name, value) in object.as_object().into_iter().flatten() {
        if matches!(&**name, "apiVersion" | "kind" | "metadata") || name.starts_with("mark") {
            continue;
        }
        if let Some(members) = value.as_object() {
            let some = members.iter().filter(|_| random.percent(70));
            part[name] = some
                .map(|(name, value)| (name.clone(), value.clone()))
                .collect::<Map<_, _>>()
                .into();
        } else {
            part[name] = value.clone();
        }
    }
    part
}

/// The options in the URL.
fn query(random: &mut Random, kind: Write) -> String {
    let mut options = Vec::new();
    if kind == Write::Apply {
        let manager = random.pick(APPLIERS).copied().unwrap_or_default();
        options.push(format!("fieldManager={manager}"));
        if random.percent(50) {
            options.push("force=true".to_owned());
        }
    } else if kind != Write::Delete {
        let manager = random.pick(WRITERS).copied().unwrap_or_default();
        options.push(format!("fieldManager={manager}"));
    }
    if random.percent(4) {
        options.push("dryRun=All".to_owned());
    }
    if kind != Write::Delete && random.percent(20) {
        let level = ["Strict", "Warn", "Ignore"][random.below(3)];
        options.push(format!("fieldValidation={level}"));
    }
    if options.is_empty() { String::new() } else { format!("?{}", options.join("&")) }
}

fn delete_options(random: &mut Random) -> Value {
    match random.below(4) {
        0 => {
            let policy = ["Orphan", "Background", "Foreground"][random.below(3)];
            json!({"propagationPolicy": policy})
        }
        1 => {
            let seconds = [0, 1, 30][random.below(3)];
            json!({"gracePeriodSeconds": seconds})
        }
        _ => Value::Null,
    }
}

fn scale(random: &mut Random, kind: Write) -> Value {
    let replicas =
        [json!(0), json!(1), json!(5), json!(-1), json!(1.5), json!("a")][random.below(6)].clone();
    kind.scale(&NAME.into(), replicas)
}

/// The operations of changes, sometimes after a test of what is there.
fn json_patch(random: &mut Random, object: &Value, changes: &[Change]) -> Value {
    let mut operations = Vec::new();
    for Change { pointer, value } in changes {
        let old = object.pointer(pointer);
        if random.percent(12) {
            operations.push(json!({"op": "test", "path": pointer, "value": old}));
        }
        operations.push(match value {
            None => json!({"op": "remove", "path": pointer}),
            Some(value) => {
                let op = if old.is_some() && random.percent(70) { "replace" } else { "add" };
                json!({"op": op, "path": pointer, "value": value})
            }
        });
    }
    operations.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definitions_and_steps_are_a_function_of_the_seed() {
        let drawn = |seed| {
            let mut random = Random::new(seed, 3);
            let definition = Definition::draw(&mut random, 3);
            let stored: Vec<(String, Value)> = definition
                .versions()
                .into_iter()
                .map(|version| {
                    let object = fresh(&mut random, &definition, &version);
                    (version, object)
                })
                .collect();
            let mut shown = vec![definition.object.to_string()];
            for is_there in [false, true, true, true, true, true] {
                let step = draw(&mut random, &definition, is_there.then_some(&*stored));
                shown.push(format!("{} {}", step.path(&definition), step.show()));
            }
            shown
        };
        assert_eq!(drawn(1), drawn(1));
        assert_ne!(drawn(1), drawn(2));
    }
}
