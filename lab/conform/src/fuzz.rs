//! Fuzzing of the core alone with steps chosen by input bytes; checks every invariant after each
//! step.

use super::generate::Generator;
use super::model::Model;
use vmarea::policy::Policy;

/// Maximum number of steps per input.
const STEPS: usize = 400;

/// Executes the sequence that `bytes` encode.
///
/// The first byte selects the policy.
///
/// # Panics
/// If an invariant does not hold or the core panics; this is the finding.
pub fn play(bytes: &[u8]) {
    let Some((&first, bytes)) = bytes.split_first() else {
        return;
    };
    let policy = Policy::PRESETS[usize::from(first) % Policy::PRESETS.len()];
    let Ok(mut model) = Model::alone(policy, true) else {
        return;
    };
    let mut generator = Generator::of_bytes(bytes);
    for _ in 0..STEPS {
        if generator.is_at_end() {
            break;
        }
        let step = generator.next(&model);
        model.apply(&step);
        if let Err(violation) = model.machine().validate() {
            panic!("{}: after {step}: {violation}", policy.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::rng::Rng;
    use std::path::Path;

    #[test]
    fn the_corpus_holds_every_invariant() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/calls");
        let mut played = 0;
        for entry in std::fs::read_dir(folder).unwrap() {
            super::play(&std::fs::read(entry.unwrap().path()).unwrap());
            played += 1;
        }
        assert!(played > 0, "no corpus");
    }

    #[test]
    fn so_do_random_bytes_under_every_policy() {
        let mut rng = Rng::new(11);
        for round in 0..60u8 {
            let mut bytes = vec![round];
            bytes.extend((0..1500).map(|_| rng.next_u64() as u8));
            super::play(&bytes);
        }
    }
}
