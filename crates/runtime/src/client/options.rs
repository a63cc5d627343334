//! Options of writes: field manager, field validation, dry run.

use std::sync::Arc;

use http::Uri;
use kube_core::{
    Resource,
    params::{PatchParams, PostParams, ValidationDirective},
};

use super::{
    Api, Client,
    layer::{encodes, query_value, set_query},
};

/// What the server does about unknown and repeated fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FieldValidation {
    /// Drops them silently.
    Ignore,
    /// Drops them with a warning; the server's default.
    Warn,
    /// Refuses the request. Apply is always strict.
    Strict,
}

impl FieldValidation {
    /// The API's spelling.
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

/// Defaults of a client's writes, where a call sets nothing.
#[derive(Debug, Clone, Default)]
pub(crate) struct WriteOptions {
    pub(crate) field_manager: Option<Arc<str>>,
    pub(crate) field_validation: Option<FieldValidation>,
    pub(crate) is_dry_run: bool,
    /// The field manager was set explicitly.
    pub(crate) is_named: bool,
}

impl WriteOptions {
    /// A client's defaults.
    pub(super) fn of(field_manager: Arc<str>) -> Self {
        Self { field_manager: Some(field_manager), ..Self::default() }
    }

    /// Whether a request uses the client's default field manager.
    pub(super) fn is_default_manager(&self, uri: &Uri) -> bool {
        let default = self.field_manager.as_deref().filter(|_| !self.is_named);
        query_value(uri, "fieldManager").zip(default).is_some_and(|(raw, name)| encodes(raw, name))
    }

    pub(super) fn post_params(&self) -> PostParams {
        let field_manager = self.field_manager.as_deref().map(str::to_owned);
        PostParams { dry_run: self.is_dry_run, field_manager }
    }

    /// A call's parameters, completed with the defaults.
    pub(super) fn patch_params(&self, params: &PatchParams, is_apply: bool) -> PatchParams {
        let mut params = params.clone();
        params.dry_run |= self.is_dry_run;
        if params.field_manager.is_none() {
            params.field_manager = self.field_manager.as_deref().map(str::to_owned);
        }
        // Apply is always strict.
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

    /// Sets the field validation, which [`PostParams`] lacks.
    pub(super) fn validate<B>(&self, mut request: http::Request<B>) -> http::Request<B> {
        if let Some(validation) = self.field_validation {
            set_query(&mut request, "fieldValidation", validation.as_str());
        }
        request
    }
}

impl Client {
    /// A clone with another field manager: the name that `managedFields` records for its writes.
    #[must_use]
    pub fn field_manager(&self, name: impl Into<Arc<str>>) -> Self {
        self.with_options(|options| {
            options.field_manager = Some(name.into());
            options.is_named = true;
        })
    }

    /// A clone whose writes are dry runs: validated and answered by the server, without a change.
    #[must_use]
    pub fn dry_run(&self) -> Self {
        self.with_options(|options| options.is_dry_run = true)
    }

    /// A clone whose writes validate unknown and repeated fields like this.
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

/// Options of this API's writes.
impl<K: Resource> Api<K> {
    /// A clone with another field manager.
    #[must_use]
    pub fn field_manager(&self, name: impl Into<Arc<str>>) -> Self {
        Self { client: self.client.field_manager(name), ..self.clone() }
    }

    /// A clone whose writes are dry runs: validated and answered by the server, without a change.
    #[must_use]
    pub fn dry_run(&self) -> Self {
        Self { client: self.client.dry_run(), ..self.clone() }
    }

    /// A clone whose writes validate unknown and repeated fields like this.
    #[must_use]
    pub fn field_validation(&self, validation: FieldValidation) -> Self {
        Self { client: self.client.field_validation(validation), ..self.clone() }
    }
}
