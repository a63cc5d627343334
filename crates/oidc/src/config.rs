//! Kubernetes' AuthenticationConfiguration: the file, and its checks.

mod email;
mod validate;

use crate::mapping::Mapping;
use serde::Deserialize;
use setpoint_configuration::{DocumentError, Kind};
use setpoint_dial::EgressType;
use setpoint_object::field;
use setpoint_small_file::SmallFileError;
use sha2::{Digest as _, Sha256};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Maximum size of a configuration file in bytes: 1 MiB.
pub const FILE_BYTES_MAX: usize = 1 << 20;

/// Maximum number of issuers: 64, as kube-apiserver.
pub const JWT_MAX: usize = 64;

const KIND: Kind = Kind {
    name: "AuthenticationConfiguration",
    versions: &[
        "apiserver.config.k8s.io/v1",
        "apiserver.config.k8s.io/v1beta1",
        "apiserver.config.k8s.io/v1alpha1",
    ],
};

/// Why a configuration is refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// More than [`FILE_BYTES_MAX`] bytes.
    #[error("more than {FILE_BYTES_MAX} bytes")]
    TooLarge,
    /// Nothing in it.
    #[error("empty config data")]
    Empty,
    /// Not YAML or JSON, another kind, unknown members, or members of another type.
    #[error(transparent)]
    Document(#[from] DocumentError),
    /// An issuer has a selector, and there is no configuration of selectors.
    #[error("oidc: egress lookup required with egress selector type {:?}", .0.name())]
    NoEgress(EgressType),
    /// An issuer has a selector that the configuration of selectors lacks.
    #[error("oidc: egress lookup for {:?} is not configured", .0.name())]
    NoDialer(EgressType),
    /// Invalid values.
    #[error("{}", field::aggregate(.0))]
    Invalid(Vec<field::Error>),
}

/// Which issuers are trusted and how their tokens become users.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct AuthenticationConfig {
    /// The issuers.
    pub jwt: Vec<JwtAuthenticator>,
    /// Which requests without credentials are anonymous; `None`: not configured.
    pub anonymous: Option<Anonymous>,
}

/// Which requests without credentials are anonymous.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Anonymous {
    /// Whether any are.
    pub enabled: bool,
    /// Only those of these paths; empty: all.
    pub conditions: Vec<AnonymousCondition>,
}

/// A path that anonymous requests may have.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct AnonymousCondition {
    /// The path, complete.
    pub path: String,
}

/// One issuer.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct JwtAuthenticator {
    /// Who signs the tokens.
    pub issuer: Issuer,
    /// Conditions on the claims.
    pub claim_validation_rules: Vec<ClaimValidationRule>,
    /// What the user is made of.
    pub claim_mappings: ClaimMappings,
    /// Conditions on the user.
    pub user_validation_rules: Vec<UserValidationRule>,
}

/// Who signs tokens.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Issuer {
    /// The claim `iss` of its tokens, and where its discovery document is.
    pub url: String,
    /// The complete URL of the discovery document, if it is elsewhere.
    #[serde(rename = "discoveryURL")]
    pub discovery_url: String,
    /// The CA of its server in PEM; empty: those of the system.
    pub certificate_authority: String,
    /// The claim `aud` must have one of these.
    pub audiences: Vec<String>,
    /// `MatchAny` with several audiences.
    pub audience_match_policy: String,
    /// How its server is reached: `controlplane` or `cluster`; empty: directly.
    pub egress_selector_type: String,
}

/// A condition on claims: a claim has a value, or an expression is true.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ClaimValidationRule {
    /// The claim.
    pub claim: String,
    /// Its text.
    pub required_value: String,
    /// An expression about `claims`.
    pub expression: String,
    /// The message for a token that fails.
    pub message: String,
}

/// What a user is made of.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ClaimMappings {
    /// Its name.
    pub username: PrefixedClaimOrExpression,
    /// Its groups.
    pub groups: PrefixedClaimOrExpression,
    /// Its uid.
    pub uid: ClaimOrExpression,
    /// Its extra values.
    pub extra: Vec<ExtraMapping>,
}

/// A claim with a prefix, or an expression.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PrefixedClaimOrExpression {
    /// The claim.
    pub claim: String,
    /// What is put before it; may be empty, but must be there.
    pub prefix: Option<String>,
    /// An expression about `claims`.
    pub expression: String,
}

/// A claim or an expression.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ClaimOrExpression {
    /// The claim.
    pub claim: String,
    /// An expression about `claims`.
    pub expression: String,
}

/// An extra value of the user.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ExtraMapping {
    /// Its key: a domain, a slash and a path, in lower case.
    pub key: String,
    /// An expression about `claims`: a text or a list of texts.
    pub value_expression: String,
}

/// A condition on the user.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct UserValidationRule {
    /// An expression about `user`.
    pub expression: String,
    /// The message for a token that fails.
    pub message: String,
}

impl AuthenticationConfig {
    /// Reads and checks a file. `disallowed_issuers`: those of this server's own tokens. Returns
    /// also the SHA-256 of what was read.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or as [`parse`](Self::parse) and [`validate`](Self::validate).
    pub fn load(
        path: &Path,
        disallowed_issuers: &[String],
    ) -> Result<(Self, [u8; 32]), ConfigError> {
        let document = setpoint_small_file::read(path, FILE_BYTES_MAX)?;
        let config = Self::parse(&document)?;
        config.validate(disallowed_issuers)?;
        Ok((config, Sha256::digest(&document).into()))
    }

    /// Reads a document in YAML or JSON.
    ///
    /// # Errors
    ///
    /// It is empty, has another kind, unknown members, or members of another type.
    pub fn parse(document: &[u8]) -> Result<Self, ConfigError> {
        if document.is_empty() {
            return Err(ConfigError::Empty);
        }
        Ok(KIND.parse(document)?)
    }

    /// Checks all values and compiles all expressions.
    ///
    /// # Errors
    ///
    /// What is wrong, in kube-apiserver's words.
    pub fn validate(&self, disallowed_issuers: &[String]) -> Result<(), ConfigError> {
        self.compile(disallowed_issuers).map(drop)
    }

    /// The compiled expressions of each issuer.
    pub(crate) fn compile(
        &self,
        disallowed_issuers: &[String],
    ) -> Result<Vec<Arc<Mapping>>, ConfigError> {
        validate::validate(self, disallowed_issuers).map_err(ConfigError::Invalid)
    }
}

impl From<SmallFileError> for ConfigError {
    fn from(error: SmallFileError) -> Self {
        match error {
            SmallFileError::Read { path, source } => Self::Read { path, source },
            SmallFileError::TooLong { .. } => Self::TooLarge,
        }
    }
}

#[cfg(test)]
mod tests;
