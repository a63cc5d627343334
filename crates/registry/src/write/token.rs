//! Tokens: requests for a service account's token, and reviews of tokens.
use super::Write;
use super::metadata::set_namespace;
use crate::admission::{Operation, Options};
use crate::attributes::check_name;
use crate::features::Feature;
use crate::kind::authentication::token_request::{self, Bound};
use crate::kind::{Report, text};
use crate::request::{Body, Object, Written};
use crate::stored::tree;
use crate::token_review::TokenVerdict;
use crate::uid::uid;
use serde_json::{Map, Value, json};
use setpoint_object::error::chain;
use setpoint_object::meta::ObjectExt;
use setpoint_object::time::Timestamp;
use setpoint_object::{ApiError, GroupKind, GroupResource, field, users};
use setpoint_schema::encode::to_bytes;
use std::sync::Weak;
use std::time::Duration;

/// The audit annotation that names an issued token by its id.
const ISSUED: &str = "authentication.kubernetes.io/issued-credential-id";

/// The objects that a token is bound to, by their claims, and the requested one.
#[derive(Debug, Default)]
struct Binding {
    claims: Map<String, Value>,
    bound: Option<Bound>,
}

impl Write<'_> {
    /// POST of a TokenRequest. Nothing is stored.
    pub(super) async fn issue_token(&self, body: &Body) -> Result<Written, ApiError> {
        let row = self
            .resource
            .subresource(self.target.subresource.as_ref().ok_or_else(ApiError::no_route)?);
        let gvk = &row.ok_or_else(ApiError::no_route)?.gvk;
        let kind = GroupKind { group: gvk.group.clone(), kind: gvk.kind.clone() };
        let name = &self.target.name;
        let mut request = self.decode_undefaulted(gvk, &[], body)?;
        token_request::default(&mut request);
        self.attributes.note_decoded(&request);
        set_namespace(self.target, &mut request)?;
        self.own_as(gvk, &mut request);
        let review = self.review(Operation::Create, name, None, Options::Write(self.options));
        self.inner.admission.mutate(&review, &mut request).await?;
        if !request.name().is_empty() && request.name() != name {
            let mut errors = field::Errors::default();
            errors.push(field::Error::invalid(
                field::Path::new("metadata").child("name"),
                &request.name().into(),
                "must match the service account name if specified",
            ));
            return Err(ApiError::invalid(&kind, name, &errors));
        }
        let (account, _) = self.stored_target().await?;
        if !request.uid().is_empty() && request.uid() != account.uid() {
            let resource = GroupResource { group: kind.group.clone(), resource: kind.kind.clone() };
            let why = format!(
                "the UID in the token request ({}) does not match the UID of the service account ({})",
                request.uid(),
                account.uid()
            );
            if self.inner.features.is_on(Feature::TokenRequestServiceAccountUIDValidation) {
                return Err(ApiError::conflict(&resource, name, &why));
            }
            self.attributes.annotate("authentication.k8s.io/token-request-uid-mismatch", &why);
            self.attributes.warn(format!("{why} but TokenRequestServiceAccountUIDValidation is not enabled. In the future, this will return a conflict error"));
        }
        let settings = &self.inner.service_account_tokens;
        if request["spec"]["audiences"].as_array().is_none_or(Vec::is_empty) {
            request["spec"]["audiences"] = settings.audiences().into();
        }
        request.set_meta("name", name.as_str().into());
        request.set_meta("namespace", self.target.namespace.as_str().into());
        if request.uid().is_empty() {
            request.set_meta("uid", account.uid().into());
        }
        request.set_meta("creationTimestamp", self.now.rfc3339().into());
        let mut errors = Report::new(self.inner.features);
        token_request::validate(&request, &mut errors);
        if !errors.is_empty() {
            return Err(ApiError::invalid(&kind, "", &errors));
        }
        self.inner.admission.validate(&review, Some(&request)).await?;
        let binding = self.binding(&request["spec"]["boundObjectRef"]).await?;
        let asked = token_request::seconds(&request);
        if let Some(max) = settings.max_seconds().filter(|max| asked > *max) {
            self.attributes.warn(format!(
                "requested expiration of {asked} seconds shortened to {max} seconds"
            ));
            request["spec"]["expirationSeconds"] = max.into();
        }
        let (id, claims) = self.claims(&request, &account, binding);
        let token = self.sign(claims).await.map_err(ApiError::internal)?;
        let expires = after(self.now, token_request::seconds(&request));
        request["status"] = json!({
            "token": token,
            "expirationTimestamp": expires.rfc3339(),
        });
        self.attributes.annotate(ISSUED, format!("JTI={id}"));
        Ok(Written { object: Object { bytes: to_bytes(&request) }, created: true, status: false })
    }

    /// Signs with the present key, or lets another program sign.
    async fn sign(&self, claims: Value) -> Result<String, String> {
        let settings = &self.inner.service_account_tokens;
        if let Some(signer) = settings.signer() {
            let signed = signer.sign(claims).await;
            return signed.map_err(|error| format!("failed to generate token: {}", chain(&*error)));
        }
        let keys = settings.key_ring().current().map_err(|error| error.to_string())?;
        let signed = match keys.is_slow() && self.inner.threads.are_used() {
            true => {
                let signed = self.inner.threads.run(async move { keys.sign(&claims) }).await;
                signed.map_err(|error| error.to_string())?
            }
            false => keys.sign(&claims),
        };
        signed.map_err(|error| error.to_string())
    }

    /// Finds the object of a reference.
    async fn binding(&self, reference: &Value) -> Result<Binding, ApiError> {
        if reference.is_null() {
            return Ok(Binding::default());
        }
        let bound = Bound::of(reference)?;
        let name = text(reference, "name");
        check_name(name)?;
        let missing = || {
            let resource = GroupResource { group: "".into(), resource: bound.resource().into() };
            ApiError::not_found(&resource, name)
        };
        let object = self.core_object(bound, name).await?.ok_or_else(missing)?;
        let account = &self.target.name;
        let runs_as = || text(&object["spec"], "serviceAccountName");
        if bound == Bound::Pod && runs_as() != account {
            return Err(ApiError::bad_request(format!(
                "cannot bind token for serviceaccount {} to pod running with different serviceaccount name.",
                field::quote(account)
            )));
        }
        let wanted = text(reference, "uid");
        if !wanted.is_empty() && wanted != object.uid() {
            let resource = GroupResource { group: "".into(), resource: bound.kind().into() };
            let why = format!(
                "the UID in the bound object reference ({wanted}) does not match the UID in record. The object might have been deleted and then recreated"
            );
            return Err(ApiError::conflict(&resource, name, &why));
        }
        let mut claims = Map::new();
        claims.insert(bound.claim().into(), json!({"name": name, "uid": object.uid()}));
        let node = text(&object["spec"], "nodeName");
        if bound == Bound::Pod && !node.is_empty() {
            let mut claim = json!({"name": node});
            if let Some(found) = self.core_object(Bound::Node, node).await? {
                claim["uid"] = found.uid().into();
            }
            claims.insert(Bound::Node.claim().into(), claim);
        }
        Ok(Binding { claims, bound: Some(bound) })
    }

    /// An object that a token can be bound to, as it is in the store.
    async fn core_object(&self, bound: Bound, name: &str) -> Result<Option<Value>, ApiError> {
        let catalog = self.inner.catalog.borrow().clone();
        let row = catalog.get("", "v1", bound.resource()).ok_or_else(ApiError::no_route)?;
        let namespace = match row.scope.is_namespaced() {
            true => &*self.target.namespace,
            false => "",
        };
        let Some(found) = self.inner.live(&row.key(namespace, name)).await? else {
            return Ok(None);
        };
        self.leave_if_large(found.value.len()).await;
        tree(&found.value).map(Some)
    }

    /// The claims of a new token, and its id.
    fn claims(&self, request: &Value, account: &Value, binding: Binding) -> (String, Value) {
        let settings = &self.inner.service_account_tokens;
        let own = settings.audiences();
        let audiences = request["spec"]["audiences"].as_array();
        let is_for_server = audiences
            .is_some_and(|list| list.iter().all(|a| a.as_str().is_some_and(|a| own.contains(&a))));
        let mut seconds = token_request::seconds(request);
        let mut kubernetes = binding.claims;
        let now = self.now.0.as_secs();
        if settings.extends()
            && binding.bound == Some(Bound::Pod)
            && token_request::is_injected(request)
            && is_for_server
        {
            kubernetes.insert("warnafter".into(), after(self.now, seconds).0.as_secs().into());
            seconds = settings.extended_seconds();
        }
        let (name, namespace) = (&self.target.name, &self.target.namespace);
        kubernetes.insert("namespace".into(), namespace.as_str().into());
        kubernetes.insert("serviceaccount".into(), json!({"name": name, "uid": account.uid()}));
        let id = uid(&self.inner.rng);
        let claims = json!({
            "iss": settings.issuers().first(),
            "sub": users::service_account(namespace, name),
            "aud": request["spec"]["audiences"],
            "exp": after(self.now, seconds).0.as_secs(),
            "iat": now,
            "nbf": now,
            "jti": id,
            "kubernetes.io": kubernetes,
        });
        (id, claims)
    }

    /// The status of a TokenReview.
    pub(super) async fn token_status(&self, review: &mut Value) -> Result<Value, ApiError> {
        let token = text(&review["spec"], "token");
        if token.is_empty() {
            return Err(ApiError::bad_request(
                "token is required for TokenReview in authentication",
            ));
        }
        let audiences = review["spec"]["audiences"].as_array().into_iter().flatten();
        let audiences: Vec<String> =
            audiences.filter_map(|audience| audience.as_str().map(str::to_owned)).collect();
        let reviewer = self.inner.token_reviewer.lock().as_ref().and_then(Weak::upgrade);
        let verdict = match reviewer {
            Some(reviewer) => reviewer.review(token, &audiences).await,
            None => {
                TokenVerdict { error: "no authenticator".to_owned(), ..TokenVerdict::default() }
            }
        };
        let mut status = json!({"user": {}});
        if let Some(user) = verdict.user {
            status["authenticated"] = true.into();
            status["user"] = user.user_info();
            status["audiences"] = verdict.audiences.into();
        }
        if !verdict.error.is_empty() {
            status["error"] = verdict.error.into();
        }
        Ok(status)
    }
}

/// A number of seconds after a time.
fn after(time: Timestamp, seconds: i64) -> Timestamp {
    time + Duration::from_secs(seconds.try_into().unwrap_or_default())
}
