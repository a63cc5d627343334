//! `Audit-Id`: the request's is echoed whatever its form, a missing one is made.

use http::{HeaderMap, HeaderName, HeaderValue};
use parking_lot::Mutex;
use rand::Rng;
use rand::rngs::SmallRng;

/// The header.
pub(crate) const HEADER: HeaderName = HeaderName::from_static("audit-id");

/// The audit id of a request.
pub(crate) fn of(headers: &HeaderMap, rng: &Mutex<SmallRng>) -> HeaderValue {
    if let Some(id) = headers.get(HEADER) {
        return id.clone();
    }
    let random: u128 = rng.lock().random();
    // Version 4, variant 1 of RFC 9562.
    let id = (random & !(0xf << 76) & !(0x3 << 62)) | (0x4 << 76) | (0x2 << 62);
    let hex = format!("{id:032x}");
    let text =
        format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]);
    HeaderValue::try_from(text).unwrap_or_else(|_| HeaderValue::from_static(""))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    #[test]
    fn made_ids_are_version_4_uuids() {
        let rng = Mutex::new(SmallRng::seed_from_u64(1));
        let id = of(&HeaderMap::new(), &rng);
        let id = id.to_str().unwrap();
        assert_eq!(id.len(), 36);
        assert_eq!(&id[14..15], "4");
        assert!("89ab".contains(&id[19..20]), "{id}");
    }
}
