//! Why a signer cannot be used, in kube-apiserver's words: clients see them.

use setpoint::registry::jwt::KeyError;
use setpoint_grpc::RpcError;
use std::time::Duration;

/// Why the program does not start with a signer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OpenError {
    #[error("while initially filling key cache")]
    Keys(#[source] KeysError),
    #[error("ask how long tokens may be valid")]
    Metadata(#[from] RpcError),
    #[error(
        "max token life supported by external-jwt-signer ({0}s) is less than acceptable (min 600s)"
    )]
    Short(i64),
    #[error(
        "service-account-max-token-expiration cannot be set longer than the token expiration supported by service-account-signing-endpoint: {asked:?} > {max:?}"
    )]
    Long { asked: Duration, max: Duration },
}

/// Why there are no new keys.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KeysError {
    #[error("while getting externally supported jwt signing keys")]
    Call(#[from] RpcError),
    #[error("found invalid refresh hint ({0}s)")]
    Hint(i64),
    #[error("found no keys")]
    None,
    #[error("invalid data timestamp")]
    Time,
    #[error("found invalid public key id {0:?}")]
    Id(String),
    #[error("found empty public key")]
    Empty,
    #[error("while parsing external public keys")]
    Key(#[from] KeyError),
}

/// Why a token was not signed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SignError {
    #[error("while signing jwt")]
    Call(#[from] RpcError),
    #[error("while validating header")]
    Header(#[from] HeaderError),
    #[error("empty signature returned")]
    NoSignature,
}

/// What is wrong with the header of a token.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HeaderError {
    #[error("while unwrapping header")]
    Base64(#[from] base64::DecodeError),
    #[error("while parsing header JSON")]
    Json(#[from] serde_json::Error),
    #[error("bad type")]
    Type,
    #[error("key id missing")]
    NoKeyId,
    #[error("key id longer than 1 kb")]
    LongKeyId,
    #[error("bad signing algorithm {0:?}")]
    Algorithm(String),
    #[error("key used for signing JWT (kid: {0}) is excluded from OIDC discovery docs")]
    Hidden(String),
    #[error("there are no keys")]
    Keys(#[source] KeyError),
}

/// The gRPC code of a failure, as a label.
pub(super) trait Coded {
    /// `None`: it is of no call.
    fn call(&self) -> Option<&RpcError>;

    fn code(&self) -> String {
        self.call().map_or("unknown-non-grpc".to_owned(), |error| error.code.to_string())
    }
}

impl Coded for KeysError {
    fn call(&self) -> Option<&RpcError> {
        if let Self::Call(error) = self { Some(error) } else { None }
    }
}

impl Coded for SignError {
    fn call(&self) -> Option<&RpcError> {
        if let Self::Call(error) = self { Some(error) } else { None }
    }
}
