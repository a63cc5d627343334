//! The written values: text as in ConfigMaps, the same in every run.

/// Words of settings.
const WORDS: [&str; 16] = [
    "server", "timeout", "endpoint", "cache", "level", "retries", "enabled", "interval",
    "upstream", "pool", "region", "token", "limit", "backend", "trace", "window",
];

/// A generator of settings: xorshift64*, from a seed.
#[derive(Debug)]
pub(crate) struct Settings(u64);

impl Settings {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn word(&mut self) -> &'static str {
        WORDS[(self.next() >> 60) as usize]
    }

    /// Exactly `n_bytes` of lines such as `cache.timeout-upstream=9f86d081884c`.
    pub(crate) fn text(&mut self, n_bytes: usize) -> String {
        let mut text = String::with_capacity(n_bytes + 64);
        while text.len() < n_bytes {
            let (a, b, c) = (self.word(), self.word(), self.word());
            text += &format!("{a}.{b}-{c}={:012x};", self.next() >> 16);
        }
        text.truncate(n_bytes);
        text
    }

    /// A ConfigMap as the API server stores it, with this number of bytes of data.
    pub(crate) fn config_map(&mut self, name: &str, n_bytes: usize) -> String {
        let (uid, text) = (self.next(), self.text(n_bytes));
        format!(
            r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{name}","namespace":"default","uid":"{:08x}-{:04x}-4{:03x}-8{:03x}-{:012x}","creationTimestamp":"2026-11-20T12:00:00Z"}},"data":{{"settings":"{text}"}}}}"#,
            uid >> 32,
            uid >> 16 & 0xffff,
            uid >> 4 & 0xfff,
            uid & 0xfff,
            uid >> 16,
        )
    }
}
