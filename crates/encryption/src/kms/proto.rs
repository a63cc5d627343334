//! The messages of `v2.KeyManagementService`, and the stored form of a value.
//!
//! Names and numbers are those of Kubernetes' `k8s.io/kms/apis/v2/api.proto` and
//! `k8s.io/apiserver/pkg/storage/value/encrypt/envelope/kmsv2/v2/api.proto`.

use bytes::Bytes;
use prost::Message;
use std::collections::BTreeMap;

/// The path of `Status`.
pub(crate) const STATUS: &str = "/v2.KeyManagementService/Status";
/// The path of `Encrypt`.
pub(crate) const ENCRYPT: &str = "/v2.KeyManagementService/Encrypt";
/// The path of `Decrypt`.
pub(crate) const DECRYPT: &str = "/v2.KeyManagementService/Decrypt";

#[derive(Clone, PartialEq, Message)]
pub(crate) struct StatusRequest {}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct StatusResponse {
    #[prost(string, tag = "1")]
    pub(crate) version: String,
    #[prost(string, tag = "2")]
    pub(crate) healthz: String,
    #[prost(string, tag = "3")]
    pub(crate) key_id: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct DecryptRequest {
    #[prost(bytes = "bytes", tag = "1")]
    pub(crate) ciphertext: Bytes,
    #[prost(string, tag = "2")]
    pub(crate) uid: String,
    #[prost(string, tag = "3")]
    pub(crate) key_id: String,
    #[prost(btree_map = "string, bytes", tag = "4")]
    pub(crate) annotations: BTreeMap<String, Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct DecryptResponse {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) plaintext: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct EncryptRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) plaintext: Vec<u8>,
    #[prost(string, tag = "2")]
    pub(crate) uid: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct EncryptResponse {
    #[prost(bytes = "bytes", tag = "1")]
    pub(crate) ciphertext: Bytes,
    #[prost(string, tag = "2")]
    pub(crate) key_id: String,
    #[prost(btree_map = "string, bytes", tag = "3")]
    pub(crate) annotations: BTreeMap<String, Vec<u8>>,
}

/// What follows the prefix of a stored value.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct EncryptedObject {
    #[prost(bytes = "bytes", tag = "1")]
    pub(crate) encrypted_data: Bytes,
    #[prost(string, tag = "2")]
    pub(crate) key_id: String,
    #[prost(bytes = "bytes", tag = "3")]
    pub(crate) encrypted_dek_source: Bytes,
    #[prost(btree_map = "string, bytes", tag = "4")]
    pub(crate) annotations: BTreeMap<String, Vec<u8>>,
    #[prost(int32, tag = "5")]
    pub(crate) encrypted_dek_source_type: i32,
}

/// The plaintext of the source is the key itself.
pub(crate) const AES_GCM_KEY: i32 = 0;
/// The plaintext of the source is a seed, from which each value's key is derived.
pub(crate) const HKDF_SHA256_XNONCE_AES_GCM_SEED: i32 = 1;
