//! Random UUIDs, of objects and of reviews that are sent to webhooks.
use parking_lot::Mutex;
use rand::Rng;
use rand::rngs::SmallRng;

/// A random (version 4) UUID from a seeded generator.
pub(crate) fn uid(rng: &Mutex<SmallRng>) -> String {
    let mut bytes: [u8; 16] = rng.lock().random();
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let mut text = String::with_capacity(36);
    for (i, byte) in bytes.iter().enumerate() {
        if matches!(i, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        for nibble in [byte >> 4, byte & 15] {
            text.push(char::from(b"0123456789abcdef"[usize::from(nibble)]));
        }
    }
    text
}
