//! The messages of `v1.ExternalJWTSigner`: names and numbers are those of Kubernetes'
//! `k8s.io/externaljwt/apis/v1/api.proto`.

use prost::Message;

/// The path of `Sign`.
pub(super) const SIGN: &str = "/v1.ExternalJWTSigner/Sign";
/// The path of `FetchKeys`.
pub(super) const FETCH_KEYS: &str = "/v1.ExternalJWTSigner/FetchKeys";
/// The path of `Metadata`.
pub(super) const METADATA: &str = "/v1.ExternalJWTSigner/Metadata";

/// The seconds of the years 1 and 10000, between which a time is valid.
const SECONDS: std::ops::Range<i64> = -62_135_596_800..253_402_300_800;

#[derive(Clone, PartialEq, Message)]
pub(super) struct SignJwtRequest {
    /// In base64url.
    #[prost(string, tag = "1")]
    pub(super) claims: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct SignJwtResponse {
    /// In base64url.
    #[prost(string, tag = "1")]
    pub(super) header: String,
    /// In base64url.
    #[prost(string, tag = "2")]
    pub(super) signature: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct FetchKeysRequest {}

#[derive(Clone, PartialEq, Message)]
pub(super) struct FetchKeysResponse {
    #[prost(message, repeated, tag = "1")]
    pub(super) keys: Vec<Key>,
    #[prost(message, optional, tag = "2")]
    pub(super) data_timestamp: Option<Timestamp>,
    #[prost(int64, tag = "3")]
    pub(super) refresh_hint_seconds: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Key {
    #[prost(string, tag = "1")]
    pub(super) key_id: String,
    /// In DER.
    #[prost(bytes = "vec", tag = "2")]
    pub(super) key: Vec<u8>,
    #[prost(bool, tag = "3")]
    pub(super) exclude_from_oidc_discovery: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct MetadataRequest {}

#[derive(Clone, PartialEq, Message)]
pub(super) struct MetadataResponse {
    #[prost(int64, tag = "1")]
    pub(super) max_token_expiration_seconds: i64,
}

/// `google.protobuf.Timestamp`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Timestamp {
    #[prost(int64, tag = "1")]
    pub(super) seconds: i64,
    #[prost(int32, tag = "2")]
    pub(super) nanos: i32,
}

impl Timestamp {
    pub(super) fn is_valid(&self) -> bool {
        SECONDS.contains(&self.seconds) && (0..1_000_000_000).contains(&self.nanos)
    }

    /// Seconds since 1970.
    pub(super) fn seconds(&self) -> f64 {
        self.seconds as f64 + f64::from(self.nanos) / 1e9
    }
}
