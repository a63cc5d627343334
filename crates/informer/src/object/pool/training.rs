//! Trains a dictionary on the first objects.
use super::Codec;
use bytes::Bytes;
use tokio::task::JoinSet;

/// The number of objects that a dictionary is trained on. A smaller cache stores plain JSON.
pub(crate) const SAMPLES: usize = 256;

/// The size of objects that is enough for training, however few they are: 1 MiB.
pub(crate) const SAMPLE_BYTES: usize = 1 << 20;

/// The largest size of a dictionary: 64 KiB. It is also at most a tenth of the samples.
pub(crate) const DICTIONARY_BYTES_MAX: usize = 64 << 10;

/// Collects samples and then trains a codec on them.
#[derive(Default)]
pub(crate) struct Training {
    samples: Vec<Bytes>,
    n_bytes: usize,
    /// The training, which takes too long for a runtime's thread.
    task: JoinSet<Codec>,
}

impl Training {
    /// Adds a sample, by reference.
    pub(crate) fn add(&mut self, json: &Bytes) {
        if !self.is_due() {
            self.n_bytes += json.len();
            self.samples.push(json.clone());
        }
    }

    /// Whether there are enough samples.
    pub(crate) fn is_due(&self) -> bool {
        !self.task.is_empty() || self.samples.len() >= SAMPLES || self.n_bytes >= SAMPLE_BYTES
    }

    /// Trains the codec. Cancel safe: another call continues.
    pub(crate) async fn codec(&mut self) -> Codec {
        if self.task.is_empty() {
            let samples = std::mem::take(&mut self.samples);
            self.task.spawn_blocking(move || Codec::trained(&samples, DICTIONARY_BYTES_MAX));
        }
        match self.task.join_next().await {
            Some(Ok(codec)) => codec,
            // Training does not panic; and a codec without a dictionary is useful, too.
            _ => Codec::new(Vec::new()),
        }
    }
}

#[cfg(all(test, feature = "compressed"))]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn same_objects_give_the_same_dictionary_and_it_improves_packing() {
        let json = |n: u32| {
            Bytes::from(format!(
                r#"{{"metadata":{{"name":"pod-{n}","namespace":"production","uid":"{:032x}"}},"status":{{"phase":"Running","qosClass":"Burstable"}}}}"#,
                n.wrapping_mul(2_654_435_769)
            ))
        };
        let mut packed = Vec::new();
        for _ in 0..2 {
            let mut training = Training::default();
            let mut n = 0;
            while !training.is_due() {
                training.add(&json(n));
                n += 1;
            }
            assert_eq!(n as usize, SAMPLES);
            let codec = training.codec().await;
            let mut one = Vec::new();
            assert!(codec.pack(&json(1_000_000), &mut one));
            packed.push(one);
        }
        assert_eq!(packed[0], packed[1]);
        let mut plain = Vec::new();
        assert!(Codec::new(Vec::new()).pack(&json(1_000_000), &mut plain));
        assert!(packed[0].len() * 3 < plain.len() * 2, "{} of {}", packed[0].len(), plain.len());
    }

    #[tokio::test(start_paused = true)]
    async fn few_large_objects_are_enough_samples_but_may_give_no_dictionary() {
        let mut training = Training::default();
        training.add(&vec![b'x'; SAMPLE_BYTES].into());
        assert!(training.is_due());
        let codec = training.codec().await;
        let mut packed = Vec::new();
        assert!(codec.pack(b"{}", &mut packed));
        assert_eq!(codec.unpack(&packed).unwrap(), b"{}");
    }
}
