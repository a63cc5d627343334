//! RSA signatures that ring does not verify: of keys below 2048 bits with SHA-384 or RSASSA-PSS,
//! and RSASSA-PSS with a salt of another length than the hash's.

use num_bigint::BigUint;
use sha2::Digest;
use x509_parser::public_key::PublicKey;
use x509_parser::x509::SubjectPublicKeyInfo;

/// Maximum length of a modulus that is computed with, in bits.
const BITS_MAX: usize = 8192;
/// Minimum length of a modulus in bits, as for ring's other signatures and for Go.
pub(crate) const BITS_MIN: usize = 1024;

/// The `DigestInfo` of a SHA-384 hash without the hash (RFC 8017, 9.2).
pub(crate) const SHA384_INFO: [u8; 19] =
    [48, 65, 48, 13, 6, 9, 96, 134, 72, 1, 101, 3, 4, 2, 2, 5, 0, 4, 48];

/// A public key.
#[derive(Debug)]
pub(crate) struct RsaKey {
    modulus: BigUint,
    exponent: u64,
}

impl RsaKey {
    /// The key of a certificate or request, if it is one of RSA.
    pub(crate) fn of(key: &SubjectPublicKeyInfo<'_>) -> Option<Self> {
        let Ok(PublicKey::RSA(rsa)) = key.parsed() else { return None };
        let exponent = u64::try_from(BigUint::from_bytes_be(rsa.exponent)).ok()?;
        Some(Self { modulus: BigUint::from_bytes_be(rsa.modulus), exponent })
    }

    /// Length of the modulus in bits.
    pub(crate) fn bits(&self) -> usize {
        usize::try_from(self.modulus.bits()).unwrap_or(usize::MAX)
    }

    /// The exponent, if Go accepts it.
    pub(crate) fn is_public(&self) -> bool {
        (2..=i32::MAX as u64).contains(&self.exponent)
    }

    /// The encoded message of a signature, in so many bytes. Takes some milliseconds.
    fn message(&self, signature: &[u8], n_bytes: usize) -> Option<Vec<u8>> {
        let number = BigUint::from_bytes_be(signature);
        if self.bits() > BITS_MAX
            || !self.is_public()
            || signature.len() != self.bits().div_ceil(8)
            || number >= self.modulus
        {
            return None;
        }
        let message = number.modpow(&BigUint::from(self.exponent), &self.modulus).to_bytes_be();
        let n_zeros = n_bytes.checked_sub(message.len())?;
        Some([vec![0; n_zeros], message].concat())
    }

    /// RSASSA-PKCS1-v1_5 (RFC 8017, 8.2.2 and 9.2) of a hash. `info`: its `DigestInfo`.
    pub(crate) fn pkcs1_verifies(&self, info: &[u8], hash: &[u8], signature: &[u8]) -> bool {
        let n_bytes = self.bits().div_ceil(8);
        // Two bytes before the padding of at least eight, and one behind it.
        let Some(n_padding) = n_bytes.checked_sub(info.len() + hash.len() + 3) else {
            return false;
        };
        let expected = [&[0, 1][..], &vec![0xff; n_padding], &[0], info, hash].concat();
        n_padding >= 8 && self.message(signature, n_bytes).is_some_and(|found| found == expected)
    }

    /// RSASSA-PSS (RFC 8017, 8.1.2 and 9.1.2), with one hash for all. `salt_bytes`: `None` if any
    /// length of the salt is accepted.
    pub(crate) fn pss_verifies<D: Digest>(
        &self,
        text: &[u8],
        signature: &[u8],
        salt_bytes: Option<usize>,
    ) -> bool {
        let Some(bits) = self.bits().checked_sub(1) else { return false };
        let n_bytes = bits.div_ceil(8);
        let Some(message) = self.message(signature, n_bytes) else { return false };
        let Some((&0xbc, rest)) = message.split_last() else { return false };
        let Some(at) = rest.len().checked_sub(<D as Digest>::output_size()) else { return false };
        let (masked, hash) = rest.split_at(at);
        let mask = mask::<D>(hash, masked.len());
        let mut block: Vec<u8> = masked.iter().zip(mask).map(|(a, b)| a ^ b).collect();
        let n_free = 8 * n_bytes - bits;
        let Some(first) = block.first_mut() else { return false };
        // The bits beyond the modulus are zero.
        let free = !(0xff_u8 >> n_free);
        if masked.first().is_some_and(|first| first & free != 0) {
            return false;
        }
        *first &= !free;
        let Some(end) = block.iter().position(|byte| *byte != 0) else { return false };
        if block.get(end) != Some(&1) {
            return false;
        }
        let salt = block.get(end + 1..).unwrap_or_default();
        if salt_bytes.is_some_and(|n| n != salt.len()) {
            return false;
        }
        let mut hasher = D::new();
        hasher.update([0; 8]);
        hasher.update(D::digest(text));
        hasher.update(salt);
        hasher.finalize()[..] == *hash
    }
}

/// The mask MGF1.
fn mask<D: Digest>(seed: &[u8], n_bytes: usize) -> Vec<u8> {
    let mut mask = Vec::with_capacity(n_bytes + <D as Digest>::output_size());
    let mut counter = 0_u32;
    while mask.len() < n_bytes {
        let mut hasher = D::new();
        hasher.update(seed);
        hasher.update(counter.to_be_bytes());
        mask.extend(hasher.finalize());
        counter += 1;
    }
    mask.truncate(n_bytes);
    mask
}
