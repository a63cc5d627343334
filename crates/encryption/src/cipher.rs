//! The ciphers, each with Kubernetes' layout of values.
//!
//! ```text
//! aesgcm     nonce (12) ‖ ciphertext ‖ tag (16)          additional data: the key in the store
//! secretbox  nonce (24) ‖ tag (16) ‖ ciphertext          no additional data
//! aescbc     initialization vector (16) ‖ ciphertext     PKCS#7 padding; not authenticated
//! ```

use crate::nonce::NonceSource;
use aes::{Aes128, Aes192, Aes256};
use aes_gcm::aead::consts::U12;
use aes_gcm::aead::generic_array::GenericArray;
use aes_gcm::{AeadCore, AeadInPlace, AesGcm, KeyInit, KeySizeUser};
use cbc::cipher::block_padding::Pkcs7;
use cbc::cipher::{BlockDecryptMut, BlockEncryptMut, KeyIvInit};
use crypto_secretbox::XSalsa20Poly1305;
use zeroize::Zeroizing;

/// Length of the authentication tag of both authenticated ciphers.
const TAG_BYTES: usize = 16;
/// Length of an AES block, and so of an initialization vector.
const BLOCK_BYTES: usize = 16;

/// A cipher. Its name is in the configuration and in the prefix of values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Kind {
    /// AES in Galois/Counter mode: authenticated; at most 2^32 writes with a key.
    AesGcm,
    /// AES in CBC mode with PKCS#7 padding: not authenticated.
    AesCbc,
    /// XSalsa20 and Poly1305: authenticated, with no limit on random nonces.
    Secretbox,
}

impl Kind {
    /// `aesgcm`, `aescbc` or `secretbox`.
    pub fn name(self) -> &'static str {
        match self {
            Self::AesGcm => "aesgcm",
            Self::AesCbc => "aescbc",
            Self::Secretbox => "secretbox",
        }
    }

    /// The prefix of values, up to the name of the key.
    pub(crate) fn prefix(self) -> &'static str {
        match self {
            Self::AesGcm => "k8s:enc:aesgcm:v1:",
            Self::AesCbc => "k8s:enc:aescbc:v1:",
            Self::Secretbox => "k8s:enc:secretbox:v1:",
        }
    }

    /// The supported key lengths in bytes.
    pub fn key_bytes(self) -> &'static [usize] {
        match self {
            Self::AesGcm | Self::AesCbc => &[16, 24, 32],
            Self::Secretbox => &[32],
        }
    }

    /// The name in Kubernetes' messages.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::AesGcm | Self::AesCbc => "AES",
            Self::Secretbox => "Secretbox",
        }
    }

    fn nonce_bytes(self) -> usize {
        match self {
            Self::AesGcm => 12,
            Self::AesCbc => BLOCK_BYTES,
            Self::Secretbox => 24,
        }
    }
}

/// Why a value cannot be decrypted with a key. The texts are those of Kubernetes' API server,
/// except where those mislead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The value is truncated.
    #[error("the stored data was shorter than the required size")]
    Short,
    /// Another key, another place in the store, or a changed value.
    #[error("cipher: message authentication failed")]
    Forged,
    /// CBC only: the length is not a multiple of the block size.
    #[error("the stored data is not a multiple of the block size")]
    Blocks,
    /// CBC only: most likely another key.
    #[error("invalid padding on input")]
    Padding,
}

/// A cipher with its key.
pub(crate) enum Cipher {
    Gcm128(Box<AesGcm<Aes128, U12>>),
    Gcm192(Box<AesGcm<Aes192, U12>>),
    Gcm256(Box<AesGcm<Aes256, U12>>),
    Cbc(Zeroizing<Vec<u8>>),
    Secretbox(Box<XSalsa20Poly1305>),
}

/// `None` if the key's length does not match.
fn keyed<C: KeyInit + KeySizeUser>(secret: &[u8]) -> Option<Box<C>> {
    C::new_from_slice(secret).ok().map(Box::new)
}

impl Cipher {
    /// `None` if the cipher does not support the key's length.
    pub(crate) fn new(kind: Kind, secret: &[u8]) -> Option<Self> {
        Some(match (kind, secret.len()) {
            (Kind::AesGcm, 16) => Self::Gcm128(keyed(secret)?),
            (Kind::AesGcm, 24) => Self::Gcm192(keyed(secret)?),
            (Kind::AesGcm, 32) => Self::Gcm256(keyed(secret)?),
            (Kind::AesCbc, 16 | 24 | 32) => Self::Cbc(Zeroizing::new(secret.to_vec())),
            (Kind::Secretbox, 32) => Self::Secretbox(keyed(secret)?),
            _ => return None,
        })
    }

    fn kind(&self) -> Kind {
        match self {
            Self::Gcm128(_) | Self::Gcm192(_) | Self::Gcm256(_) => Kind::AesGcm,
            Self::Cbc(_) => Kind::AesCbc,
            Self::Secretbox(_) => Kind::Secretbox,
        }
    }

    /// Appends the encrypted value to `header`. Fails if there is no randomness.
    pub(crate) fn seal(
        &self,
        header: &[u8],
        value: &[u8],
        place: &[u8],
        nonces: &NonceSource,
    ) -> std::io::Result<Vec<u8>> {
        let n_nonce = self.kind().nonce_bytes();
        let mut out = Vec::with_capacity(header.len() + n_nonce + value.len() + 2 * TAG_BYTES);
        out.extend_from_slice(header);
        out.resize(header.len() + n_nonce, 0);
        nonces.fill(&mut out[header.len()..])?;
        let at = header.len();
        match self {
            Self::Gcm128(cipher) => seal_gcm(&**cipher, &mut out, at, value, place),
            Self::Gcm192(cipher) => seal_gcm(&**cipher, &mut out, at, value, place),
            Self::Gcm256(cipher) => seal_gcm(&**cipher, &mut out, at, value, place),
            Self::Cbc(key) => seal_cbc(key, &mut out, at, value),
            Self::Secretbox(cipher) => seal_box(cipher, &mut out, at, value),
        }
        .ok_or_else(|| std::io::Error::other("the value is too large for the cipher"))?;
        Ok(out)
    }

    /// Decrypts what follows the header.
    pub(crate) fn open(&self, sealed: &[u8], place: &[u8]) -> Result<Vec<u8>, OpenError> {
        match self {
            Self::Gcm128(cipher) => open_gcm(&**cipher, sealed, place),
            Self::Gcm192(cipher) => open_gcm(&**cipher, sealed, place),
            Self::Gcm256(cipher) => open_gcm(&**cipher, sealed, place),
            Self::Cbc(key) => open_cbc(key, sealed),
            Self::Secretbox(cipher) => open_box(cipher, sealed),
        }
    }
}

type Gcm<C> = AesGcm<C, U12>;

fn seal_gcm<C>(
    cipher: &Gcm<C>,
    out: &mut Vec<u8>,
    at: usize,
    value: &[u8],
    place: &[u8],
) -> Option<()>
where
    Gcm<C>: AeadInPlace + AeadCore<NonceSize = U12>,
{
    let body = out.len();
    out.extend_from_slice(value);
    let (nonce, text) = out[at..].split_at_mut(body - at);
    let nonce = GenericArray::clone_from_slice(nonce);
    let tag = cipher.encrypt_in_place_detached(&nonce, place, text).ok()?;
    out.extend_from_slice(&tag);
    Some(())
}

fn open_gcm<C>(cipher: &Gcm<C>, sealed: &[u8], place: &[u8]) -> Result<Vec<u8>, OpenError>
where
    Gcm<C>: AeadInPlace + AeadCore<NonceSize = U12>,
{
    let (nonce, rest) = sealed.split_at_checked(12).ok_or(OpenError::Short)?;
    let at = rest.len().checked_sub(TAG_BYTES).ok_or(OpenError::Short)?;
    let (text, tag) = rest.split_at(at);
    let mut text = text.to_vec();
    let (nonce, tag) = (GenericArray::from_slice(nonce), GenericArray::from_slice(tag));
    match cipher.decrypt_in_place_detached(nonce, place, &mut text, tag) {
        Ok(()) => Ok(text),
        Err(_) => Err(OpenError::Forged),
    }
}

fn seal_box(cipher: &XSalsa20Poly1305, out: &mut Vec<u8>, at: usize, value: &[u8]) -> Option<()> {
    let nonce = GenericArray::clone_from_slice(&out[at..]);
    let tag_at = out.len();
    out.resize(tag_at + TAG_BYTES, 0);
    out.extend_from_slice(value);
    let text = &mut out[tag_at + TAG_BYTES..];
    let tag = cipher.encrypt_in_place_detached(&nonce, b"", text).ok()?;
    out[tag_at..tag_at + TAG_BYTES].copy_from_slice(&tag);
    Some(())
}

fn open_box(cipher: &XSalsa20Poly1305, sealed: &[u8]) -> Result<Vec<u8>, OpenError> {
    let (nonce, rest) = sealed.split_at_checked(24).ok_or(OpenError::Short)?;
    let (tag, text) = rest.split_at_checked(TAG_BYTES).ok_or(OpenError::Short)?;
    let mut text = text.to_vec();
    let (nonce, tag) = (GenericArray::from_slice(nonce), GenericArray::from_slice(tag));
    match cipher.decrypt_in_place_detached(nonce, b"", &mut text, tag) {
        Ok(()) => Ok(text),
        Err(_) => Err(OpenError::Forged),
    }
}

fn seal_cbc(key: &[u8], out: &mut Vec<u8>, at: usize, value: &[u8]) -> Option<()> {
    let iv = &out[at..];
    let text = match key.len() {
        16 => cbc::Encryptor::<Aes128>::new_from_slices(key, iv)
            .ok()?
            .encrypt_padded_vec_mut::<Pkcs7>(value),
        24 => cbc::Encryptor::<Aes192>::new_from_slices(key, iv)
            .ok()?
            .encrypt_padded_vec_mut::<Pkcs7>(value),
        _ => cbc::Encryptor::<Aes256>::new_from_slices(key, iv)
            .ok()?
            .encrypt_padded_vec_mut::<Pkcs7>(value),
    };
    out.extend_from_slice(&text);
    Some(())
}

fn open_cbc(key: &[u8], sealed: &[u8]) -> Result<Vec<u8>, OpenError> {
    let (iv, text) = sealed.split_at_checked(BLOCK_BYTES).ok_or(OpenError::Short)?;
    if text.len() % BLOCK_BYTES != 0 {
        return Err(OpenError::Blocks);
    }
    // Other lengths were refused when the key was created.
    let opened = match key.len() {
        16 => cbc::Decryptor::<Aes128>::new_from_slices(key, iv)
            .map(|c| c.decrypt_padded_vec_mut::<Pkcs7>(text)),
        24 => cbc::Decryptor::<Aes192>::new_from_slices(key, iv)
            .map(|c| c.decrypt_padded_vec_mut::<Pkcs7>(text)),
        _ => cbc::Decryptor::<Aes256>::new_from_slices(key, iv)
            .map(|c| c.decrypt_padded_vec_mut::<Pkcs7>(text)),
    };
    match opened {
        Ok(Ok(value)) => Ok(value),
        _ => Err(OpenError::Padding),
    }
}

#[cfg(test)]
mod tests;
