//! The kinds of the cases, and what is made of a case here.

use super::Answer;
use serde_json::{Value, json};
use setpoint_object::ApiError;
use setpoint_object::time::Timestamp;
use setpoint_schema::apply::{self, Manager, Typing};
use setpoint_schema::node::TypeSchema;
use setpoint_schema::{builtin, crd, decode, patch};
use std::collections::BTreeSet;
use std::time::Duration;

/// The definition of the custom kind.
pub(super) const DEFINITION: &str = include_str!("definition.json");

/// A kind of objects.
#[derive(Debug)]
pub(super) struct Kind {
    pub(super) name: &'static str,
    pub(super) api_version: &'static str,
    pub(super) schema: TypeSchema,
    pub(super) custom: bool,
    pub(super) has_status: bool,
}

impl Kind {
    /// The kinds; the custom one is last.
    pub(super) fn all() -> Vec<Self> {
        let built_in = |group, api_version, name, has_status| Self {
            name,
            api_version,
            schema: builtin::type_schema(group, "v1", name).expect("a built-in kind"),
            custom: false,
            has_status,
        };
        let definition: Value = serde_json::from_str(DEFINITION).expect("the definition is JSON");
        let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        vec![
            built_in("", "v1", "Pod", true),
            built_in("apps", "apps/v1", "Deployment", true),
            built_in("", "v1", "Service", true),
            built_in("", "v1", "ConfigMap", false),
            Self {
                name: "Foo",
                api_version: "ex.io/v1",
                schema: crd::type_schema(schema),
                custom: true,
                has_status: true,
            },
        ]
    }

    /// Makes an object canonical. False if it is none of this kind.
    pub(super) fn conform(&self, object: &mut Value, problems: &mut Vec<String>) -> bool {
        self.custom || decode::conform(&self.schema, self.name, object, problems).is_ok()
    }

    /// A strategic merge patch, and what decoding then says.
    pub(super) fn strategic(&self, object: &Value, text: &str) -> Answer {
        let mut object = object.clone();
        let mut problems = Vec::new();
        let done =
            patch::strategic_merge_patch(&self.schema, &mut object, text.as_bytes(), &mut problems);
        if let Err(error) = done {
            return Answer::failed(&error);
        }
        let n_in_patch = problems.len();
        if let Err(error) = decode::conform(&self.schema, self.name, &mut object, &mut problems) {
            let sent = serde_json::from_str(text).unwrap_or_default();
            return Answer::failed(&patch::undecodable(
                &patch::go_value(&sent),
                &error.to_string(),
            ));
        }
        problems[n_in_patch..].sort_unstable();
        Answer { object: Some(object), warnings: problems, ..Answer::default() }
    }

    /// The writes of a story.
    pub(super) fn story(&self, steps: &[Value]) -> Answer {
        let mut live: Option<Value> = None;
        let mut answer = Answer::default();
        for step in steps {
            match self.write(step, live.as_ref()) {
                Ok(mut object) => {
                    object["metadata"]["uid"] = json!("uid");
                    answer.steps.push(Answer { object: Some(object.clone()), ..Answer::default() });
                    live = Some(object);
                }
                Err(error) => answer.steps.push(Answer::failed(&error)),
            }
        }
        answer
    }

    fn write(&self, step: &Value, live: Option<&Value>) -> Result<Value, ApiError> {
        let text = |name: &str| step[name].as_str().unwrap_or_default();
        let subresource = text("subresource");
        let reset: BTreeSet<&str> = match (subresource, self.name) {
            ("status", "Foo") => ["spec", "metadata"].into(),
            ("status", "Deployment") => ["spec", "metadata/labels"].into(),
            ("status", "Pod") => {
                ["spec", "metadata/deletionTimestamp", "metadata/ownerReferences"].into()
            }
            ("status", _) => ["spec"].into(),
            _ if self.has_status => ["status"].into(),
            _ => BTreeSet::new(),
        };
        let versions = [self.api_version.to_owned()];
        let typing = Typing {
            schema: &self.schema,
            kind: self.name,
            reset: &reset,
            custom: self.custom,
            versions: &versions,
            others: None,
        };
        let now = Timestamp(Duration::from_secs(1));
        let manager =
            Manager { name: text("manager"), api_version: self.api_version, subresource, now };
        let mut object = if text("op") == "apply" {
            apply::apply(&typing, live, &step["object"], &manager, step["force"] == true)?.object
        } else {
            let mut new = step["object"].clone();
            if let Some(live) = live {
                if text("op") == "patch" {
                    new = live.clone();
                    patch::merge_patch(
                        &mut new,
                        step["object"].to_string().as_bytes(),
                        &mut Vec::new(),
                    )?;
                }
                new["metadata"]["uid"] = json!("uid");
            }
            assert!(self.conform(&mut new, &mut Vec::new()), "{new}");
            apply::update(&typing, live, &mut new, &manager);
            new
        };
        // Here decoding refuses what no field type says: times, bytes.
        if !self.conform(&mut object, &mut Vec::new()) {
            return Err(patch::undecodable(&step["object"].to_string(), "no object of its type"));
        }
        Ok(object)
    }
}
