//! What writes say about themselves: in whose name, how strictly, and whether in earnest.

use std::{borrow::Cow, sync::Arc};

use http::Uri;
use kube_core::{
    Resource,
    params::{PatchParams, PostParams, ValidationDirective},
};

use super::{Api, Client, layer::query_value};

/// What a server does about fields that a type does not have, or that come twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FieldValidation {
    /// Drops them in silence.
    Ignore,
    /// Drops them, and says so in a warning; what servers do unasked.
    Warn,
    /// Refuses the request. Apply is always so.
    Strict,
}

impl FieldValidation {
    /// As the API spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ignore => "Ignore",
            Self::Warn => "Warn",
            Self::Strict => "Strict",
        }
    }
}

impl From<&ValidationDirective> for FieldValidation {
    fn from(directive: &ValidationDirective) -> Self {
        match directive {
            ValidationDirective::Ignore => Self::Ignore,
            ValidationDirective::Warn => Self::Warn,
            ValidationDirective::Strict => Self::Strict,
        }
    }
}

/// What the writes of a client say unless a call says otherwise.
#[derive(Debug, Clone, Default)]
pub(crate) struct WriteOptions {
    pub(crate) field_manager: Option<Arc<str>>,
    pub(crate) field_validation: Option<FieldValidation>,
    pub(crate) is_dry_run: bool,
    /// The field manager was asked for.
    pub(crate) is_named: bool,
}

impl WriteOptions {
    /// What a client says unasked.
    pub(super) fn of(field_manager: Arc<str>) -> Self {
        Self { field_manager: Some(field_manager), ..Self::default() }
    }

    /// Whether a request is in the name that the client gives unasked.
    pub(super) fn is_default_manager(&self, uri: &Uri) -> bool {
        !self.is_named
            && self.field_manager.is_some()
            && query_value(uri, "fieldManager") == self.field_manager.as_deref()
    }

    pub(super) fn post_params(&self) -> PostParams {
        let field_manager = self.field_manager.as_deref().map(str::to_owned);
        PostParams { dry_run: self.is_dry_run, field_manager }
    }

    /// A call's own parameters, with what they leave open.
    pub(super) fn patch_params(&self, params: &PatchParams, is_apply: bool) -> PatchParams {
        let mut params = params.clone();
        params.dry_run |= self.is_dry_run;
        if params.field_manager.is_none() {
            params.field_manager = self.field_manager.as_deref().map(str::to_owned);
        }
        // Apply is strict whatever is said.
        if is_apply {
            params.field_validation = None;
        } else if params.field_validation.is_none() {
            params.field_validation = self.field_validation.map(|validation| match validation {
                FieldValidation::Ignore => ValidationDirective::Ignore,
                FieldValidation::Warn => ValidationDirective::Warn,
                FieldValidation::Strict => ValidationDirective::Strict,
            });
        }
        params
    }

    /// Says what [`PostParams`] has no word for.
    pub(super) fn validate<B>(&self, mut request: http::Request<B>) -> http::Request<B> {
        if let Some(validation) = self.field_validation {
            add_query(&mut request, "fieldValidation", validation.as_str());
        }
        request
    }
}

/// Adds a parameter, whose text needs no escapes, to a request's query.
pub(super) fn add_query<B>(request: &mut http::Request<B>, name: &str, value: &str) {
    let uri = request.uri();
    let separator = match uri.query() {
        None => "?",
        Some("") => "",
        Some(query) if query.ends_with('&') => "",
        Some(_) => "&",
    };
    let path: Cow<'_, str> = uri.path_and_query().map_or("/".into(), |path| path.as_str().into());
    let mut parts = uri.clone().into_parts();
    // What was a path is one with more of a query behind it, too.
    if let Ok(path) = format!("{path}{separator}{name}={value}").parse() {
        parts.path_and_query = Some(path);
        if let Ok(uri) = Uri::from_parts(parts) {
            *request.uri_mut() = uri;
        }
    }
}

impl Client {
    /// The same client with another field manager: the name under which `managedFields` records its
    /// writes.
    #[must_use]
    pub fn field_manager(&self, name: impl Into<Arc<str>>) -> Self {
        self.with_options(|options| {
            options.field_manager = Some(name.into());
            options.is_named = true;
        })
    }

    /// The same client whose writes are checked and answered, and change nothing.
    #[must_use]
    pub fn dry_run(&self) -> Self {
        self.with_options(|options| options.is_dry_run = true)
    }

    /// The same client whose writes are as strict as this about unknown and repeated fields.
    #[must_use]
    pub fn field_validation(&self, validation: FieldValidation) -> Self {
        self.with_options(|options| options.field_validation = Some(validation))
    }

    fn with_options(&self, change: impl FnOnce(&mut WriteOptions)) -> Self {
        let mut client = self.clone();
        change(&mut client.options);
        client
    }
}

/// How this one's writes differ from the client's.
impl<K: Resource> Api<K> {
    /// The same calls in the name of another field manager.
    #[must_use]
    pub fn field_manager(&self, name: impl Into<Arc<str>>) -> Self {
        Self { client: self.client.field_manager(name), ..self.clone() }
    }

    /// The same calls, whose writes are checked and answered, and change nothing.
    #[must_use]
    pub fn dry_run(&self) -> Self {
        Self { client: self.client.dry_run(), ..self.clone() }
    }

    /// The same calls, whose writes are as strict as this about unknown and repeated fields.
    #[must_use]
    pub fn field_validation(&self, validation: FieldValidation) -> Self {
        Self { client: self.client.field_validation(validation), ..self.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameter_joins_whatever_query_there_is() {
        for (before, after) in [
            ("/api/v1/pods", "/api/v1/pods?a=b"),
            ("/api/v1/pods?", "/api/v1/pods?a=b"),
            ("/api/v1/pods?&x=y", "/api/v1/pods?&x=y&a=b"),
            ("https://host:1/api?x=y", "https://host:1/api?x=y&a=b"),
        ] {
            let mut request = http::Request::get(before).body(()).unwrap();
            add_query(&mut request, "a", "b");
            assert_eq!(request.uri().to_string(), after);
        }
    }
}
