//! Reviews: questions to the authorizers and about the user, which are answered and not stored.
use super::{Write, review_selector};
use crate::admission::{Operation, Options};
use crate::attributes::ResourcePath;
use crate::authorize::{Decision, Opinion};
use crate::identity::Identity;
use crate::kind::{Reviewed, text};
use crate::request::{Body, Object, Written};
use crate::routed::{Attributes, Requested};
use crate::subresource::Subresource;
use crate::verb::Verb;
use serde_json::{Map, Value, json};
use setpoint_object::error::aggregate;
use setpoint_object::field::{self, Path};
use setpoint_object::meta::ObjectExt;
use setpoint_object::{ApiError, GroupKind};
use setpoint_rbac::MissingRole;
use setpoint_schema::encode::to_bytes;
use std::collections::BTreeMap;
use std::sync::Arc;

impl Write<'_> {
    /// POST of a review.
    pub(super) async fn answer_review(
        &self,
        reviewed: Reviewed,
        body: &Body,
    ) -> Result<Written, ApiError> {
        let mut review = self.decode(body)?;
        // The reference answers the others with an object of its own.
        if !matches!(reviewed, Reviewed::User | Reviewed::OwnRules) {
            self.own(None, &mut review);
        }
        let name = review.name().to_owned();
        let asked = self.review(Operation::Create, &name, None, Options::Write(self.options));
        self.inner.admission.mutate(&asked, &mut review).await?;
        self.check_review(reviewed, &mut review)?;
        self.inner.admission.validate(&asked, Some(&review)).await?;
        let status = match reviewed {
            Reviewed::User => {
                review["metadata"] = json!({"creationTimestamp": self.now.rfc3339()});
                json!({"userInfo": self.attributes.identity.user_info()})
            }
            Reviewed::Token => self.token_status(&mut review).await?,
            Reviewed::OwnRules => self.rules_status(&mut review),
            Reviewed::Access | Reviewed::LocalAccess | Reviewed::OwnAccess => {
                self.access_status(reviewed, &review["spec"]).await
            }
        };
        review["status"] = status;
        Ok(Written { object: Object { bytes: to_bytes(&review) }, created: true, status: false })
    }

    /// Puts the metadata of a review in order, and checks the review.
    fn check_review(&self, reviewed: Reviewed, review: &mut Value) -> Result<(), ApiError> {
        match reviewed {
            Reviewed::User => Ok(()),
            Reviewed::Token => {
                super::metadata::clear_system(review);
                super::metadata::set_namespace(self.target, review)?;
                super::metadata::deduplicate_owners(self.attributes, review);
                Ok(())
            }
            Reviewed::OwnRules if text(&review["spec"], "namespace").is_empty() => {
                Err(ApiError::bad_request("no namespace on request"))
            }
            Reviewed::OwnRules => Ok(()),
            Reviewed::Access | Reviewed::LocalAccess | Reviewed::OwnAccess => {
                super::metadata::check_namespace(self.target, review)?;
                super::metadata::clear_system(review);
                let metadata = review.meta_mut();
                metadata.remove("namespace");
                if reviewed == Reviewed::LocalAccess {
                    metadata.insert("namespace".to_owned(), self.target.namespace.clone().into());
                }
                self.check_access_review(reviewed, review)
            }
        }
    }

    fn check_access_review(&self, reviewed: Reviewed, review: &Value) -> Result<(), ApiError> {
        let mut errors = field::Errors::default();
        let spec = Path::root().child("spec");
        let (resource, path) =
            (&review["spec"]["resourceAttributes"], &review["spec"]["nonResourceAttributes"]);
        match (resource.is_object(), path.is_object()) {
            (true, true) => errors.push(field::Error::invalid(
                spec.child("nonResourceAttributes"),
                path,
                "cannot be specified in combination with resourceAttributes",
            )),
            (false, false) => errors.push(field::Error::invalid(
                spec.child("resourceAttributes"),
                &Value::Null,
                "exactly one of nonResourceAttributes or resourceAttributes must be specified",
            )),
            _ => {}
        }
        let own = &review["spec"];
        let has_group = own["groups"].as_array().is_some_and(|groups| !groups.is_empty());
        if reviewed != Reviewed::OwnAccess && text(own, "user").is_empty() && !has_group {
            errors.push(field::Error::invalid(
                spec.child("user"),
                &Value::from(""),
                "at least one of user or group must be specified",
            ));
        }
        for member in review_selector::MEMBERS {
            let path = spec.child("resourceAttributes").child(member);
            review_selector::check(&resource[member], &path, &mut errors);
        }
        let is_local = reviewed == Reviewed::LocalAccess;
        if !is_bare(&review["metadata"], is_local) {
            let but = if is_local { " except for namespace" } else { "" };
            errors.push(field::Error::invalid(
                Path::root().child("metadata"),
                &review["metadata"],
                format!("must be empty{but}"),
            ));
        }
        if reviewed == Reviewed::LocalAccess {
            let namespace = &resource["namespace"];
            if resource.is_object()
                && namespace.as_str().unwrap_or_default() != self.target.namespace
            {
                errors.push(field::Error::invalid(
                    spec.child("resourceAttributes").child("namespace"),
                    &namespace.as_str().unwrap_or_default().into(),
                    "must match metadata.namespace",
                ));
            }
            if path.is_object() {
                errors.push(field::Error::invalid(
                    spec.child("nonResourceAttributes"),
                    path,
                    "disallowed on this kind of request",
                ));
            }
        }
        // The API's error names no kind.
        let kind = GroupKind { kind: "".into(), ..self.resource.group_kind() };
        match errors.is_empty() {
            true => Ok(()),
            false => Err(ApiError::invalid(&kind, "", &errors)),
        }
    }

    async fn access_status(&self, reviewed: Reviewed, spec: &Value) -> Value {
        let identity = match reviewed {
            Reviewed::OwnAccess => self.attributes.identity.clone(),
            _ => reviewed_identity(spec),
        };
        let (verb, requested) = match &spec["resourceAttributes"] {
            Value::Object(_) => {
                let resource = &spec["resourceAttributes"];
                let of = |member| text(resource, member).to_owned();
                let version = of("version");
                let path = ResourcePath {
                    group: of("group"),
                    version: if version.is_empty() { "*".to_owned() } else { version },
                    resource: of("resource"),
                    namespace: of("namespace"),
                    name: of("name"),
                    subresource: Subresource::of(text(resource, "subresource")),
                };
                (text(resource, "verb"), Requested::Unrouted(path))
            }
            _ => {
                let path = &spec["nonResourceAttributes"];
                (text(path, "verb"), Requested::Path(text(path, "path").to_owned()))
            }
        };
        let resource = &spec["resourceAttributes"];
        let request = Attributes {
            field_selector: review_selector::fields(&resource["fieldSelector"]),
            label_selector: review_selector::labels(&resource["labelSelector"]),
            ..Attributes::new(identity, Verb::from(verb), requested)
        };
        let mut status = Map::new();
        let ignored = review_selector::ignored(resource);
        let mut say = |member: &str, value: Value| status.insert(member.to_owned(), value);
        let mut faults = Vec::new();
        let Opinion { decision, failures } = self.inner.authorization.opinion(&request).await;
        let (is_allowed, reason) = match decision {
            Decision::Allow(reason) => (true, reason),
            Decision::NoOpinion(reason) => (false, reason),
            Decision::Deny(reason) => {
                say("denied", true.into());
                (false, reason)
            }
        };
        if !failures.is_empty() {
            let texts: Vec<&str> = failures.iter().map(ApiError::detail).collect();
            faults.push(aggregate(&texts));
        }
        faults.extend(ignored);
        if !faults.is_empty() {
            say("evaluationError", faults.join("; ").into());
        }
        say("allowed", is_allowed.into());
        if !reason.is_empty() {
            say("reason", reason.into());
        }
        Value::Object(status)
    }

    fn rules_status(&self, review: &mut Value) -> Value {
        let namespace = text(&review["spec"], "namespace").to_owned();
        review["spec"] = json!({});
        let held = self.inner.authorization.rules(&self.attributes.identity, &namespace);
        let (mut of_resources, mut of_paths) = (Vec::new(), Vec::new());
        for rule in held.rules.iter().flat_map(|rules| rules.iter()) {
            let shown = json!(rule);
            match rule.non_resource_urls.is_empty() {
                true => of_resources.push(shown),
                false => of_paths.push(shown),
            }
        }
        let mut status = json!({
            "resourceRules": of_resources,
            "nonResourceRules": of_paths,
            "incomplete": !held.unlisted.is_empty(),
        });
        let unlisted = held.unlisted.iter().map(|kind| {
            format!("{} authorizer does not support user rule resolution", kind.to_lowercase())
        });
        let missing = held.missing_roles.iter().map(MissingRole::to_string);
        let faults: Vec<String> = unlisted.chain(missing).collect();
        if !faults.is_empty() {
            status["evaluationError"] = aggregate(&faults).into();
        }
        status
    }
}

fn texts(value: &Value) -> impl Iterator<Item = &str> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str)
}

/// Whether the metadata of a review has nothing that a client has set.
fn is_bare(metadata: &Value, is_local: bool) -> bool {
    metadata.as_object().into_iter().flatten().all(|(name, value)| {
        name == "managedFields"
            || is_local && name == "namespace"
            || value.is_null()
            || matches!(value, Value::String(text) if text.is_empty())
            || matches!(value, Value::Array(items) if items.is_empty())
            || matches!(value, Value::Object(members) if members.is_empty())
    })
}

/// The user of a SubjectAccessReview.
fn reviewed_identity(spec: &Value) -> Identity {
    let extra = spec["extra"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, values)| (key.to_lowercase(), texts(values).map(str::to_owned).collect()));
    let extra: BTreeMap<String, Vec<String>> = extra.collect();
    Identity {
        uid: text(spec, "uid").into(),
        extra: Arc::new(extra),
        ..Identity::new(text(spec, "user"), texts(&spec["groups"]))
    }
}
