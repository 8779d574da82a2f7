//! The arithmetic of chunks, against brute force.

use pagewise_managers::manager::{
    ChunkParameters, ChunkPolicy, ManagerError, RunArray, RunFootprint,
};

/// Numbers that look random (SplitMix64), so that the cases are the same on every machine.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    /// Of any size up to so many bits.
    fn up_to_bits(&mut self, bits: u64) -> u64 {
        let bits = 1 + self.below(bits);
        self.next() >> (64 - bits)
    }
}

/// A policy, to count by hand.
#[derive(Clone, Copy)]
struct Rules {
    granularity: u64,
    block: u64,
    margin: u64,
    buffers: u64,
}

struct Case {
    runs: u64,
    arrays: Vec<(u128, bool)>,
    fixed: Vec<u128>,
    rules: Rules,
    available: u128,
}

impl Case {
    fn random(numbers: &mut Numbers) -> Self {
        let runs = 1 + numbers.up_to_bits(30);
        let arrays: Vec<_> = (0..numbers.below(4))
            .map(|_| (1 + u128::from(numbers.up_to_bits(24)), numbers.below(5) == 0))
            .collect();
        let fixed: Vec<_> =
            (0..numbers.below(3)).map(|_| u128::from(numbers.up_to_bits(40))).collect();
        let rules = Rules {
            granularity: [1, 1, 512, 4096, 2 << 20][numbers.below(5) as usize],
            block: [1, 1, 1024, 2 << 20][numbers.below(4) as usize],
            margin: if numbers.below(4) == 0 { numbers.up_to_bits(30) } else { 0 },
            buffers: [1, 1, 1, 2, 3][numbers.below(5) as usize],
        };
        let mut case = Self { runs, arrays, fixed, rules, available: 0 };
        // Within a byte of a whole number of runs, half of the time.
        let length = 1 + numbers.below(runs);
        let near = case.bytes(length) + u128::from(rules.margin) + 1;
        case.available = match numbers.below(4) {
            0 => u128::from(numbers.up_to_bits(54)),
            n => near.saturating_sub(u128::from(n % 3)),
        };
        case
    }

    /// Counted anew, one array at a time.
    fn bytes(&self, length: u64) -> u128 {
        let Rules { granularity, block, buffers, .. } = self.rules;
        let up = |bytes: u128, unit: u64| match bytes % u128::from(unit) {
            0 => bytes,
            rest => bytes + u128::from(unit) - rest,
        };
        let round = |bytes: u128| match bytes * 2 > u128::from(block) {
            true => up(bytes, granularity).max(up(bytes, block)),
            false => up(bytes, granularity),
        };
        let divided = length < self.runs;
        let mut sum = 0;
        for &(per_run, windowed) in &self.arrays {
            let copies = match (divided, windowed) {
                (false, _) => 1,
                (true, true) => 2,
                (true, false) => u128::from(buffers),
            };
            sum += round(per_run * u128::from(length)) * copies;
        }
        self.fixed.iter().fold(sum, |sum, &bytes| sum + round(bytes))
    }

    fn fits(&self, length: u64) -> bool {
        let bytes = self.bytes(length);
        bytes == 0 || bytes + u128::from(self.rules.margin) <= self.available
    }

    fn footprint(&self) -> RunFootprint {
        let array = |&(bytes, windowed): &(u128, bool)| {
            let array = RunArray::new(bytes);
            if windowed { array.windowed() } else { array }
        };
        let footprint =
            self.arrays.iter().map(array).fold(RunFootprint::new(self.runs), RunFootprint::array);
        self.fixed.iter().copied().fold(footprint, RunFootprint::fixed)
    }

    fn policy(&self) -> ChunkPolicy {
        let Rules { granularity, block, margin, buffers } = self.rules;
        let policy = ChunkPolicy::exact().granularity_bytes(granularity).block_bytes(block);
        policy.margin_bytes(margin).buffers(buffers)
    }
}

/// More runs never take fewer bytes, so a length that fits while the next does not is the longest.
#[test]
fn a_million_random_divisions_are_the_longest_that_fit() {
    let mut numbers = Numbers(1);
    let (mut divided, mut whole, mut refused) = (0, 0, 0);
    for _ in 0..1_000_000 {
        let case = Case::random(&mut numbers);
        match case.footprint().chunks(case.available, case.policy()) {
            Ok(chunks) if chunks.chunks() == 1 => {
                assert!(case.fits(case.runs));
                whole += 1;
            }
            Ok(chunks) => {
                let length = chunks.chunk_length();
                assert!(!case.fits(case.runs) && case.fits(length));
                assert!(length + 1 == case.runs || !case.fits(length + 1));
                assert!(length * (chunks.chunks() - 1) < case.runs);
                assert!(length * chunks.chunks() >= case.runs);
                assert!((1..=length).contains(&chunks.last_length()));
                divided += 1;
            }
            Err(error) => {
                assert!(!case.fits(case.runs));
                assert!(case.arrays.is_empty() || case.runs == 1 || !case.fits(1), "{error}");
                refused += 1;
            }
        }
    }
    assert!(
        divided > 300_000 && whole > 100_000 && refused > 50_000,
        "{divided} {whole} {refused}"
    );
}

#[test]
fn small_divisions_agree_with_trying_every_length() {
    let mut numbers = Numbers(2);
    for _ in 0..20_000 {
        let mut case = Case::random(&mut numbers);
        case.runs = 1 + numbers.below(60);
        case.rules.granularity = [1, 16, 512][numbers.below(3) as usize];
        case.rules.block = [1, 64, 1024][numbers.below(3) as usize];
        case.rules.margin = 0;
        case.arrays.iter_mut().for_each(|(bytes, _)| *bytes = *bytes % 100 + 1);
        case.fixed.iter_mut().for_each(|bytes| *bytes %= 100);
        case.available = u128::from(numbers.below(6000));
        let longest = (1..=case.runs).rev().find(|&length| case.fits(length));
        let found = case.footprint().chunks(case.available, case.policy());
        let divisible = !case.arrays.is_empty() && case.runs > 1;
        let expected = longest.filter(|&length| divisible || length == case.runs);
        assert_eq!(found.ok().map(|chunks| chunks.chunk_length()), expected);
    }
}

/// cubie computes with floating point: one run short or too many, where this is exact.
#[test]
fn petabytes_are_divided_exactly() {
    let footprint = RunFootprint::new(945_773_602).array(RunArray::new(7_836_196)).fixed(530_943);
    let chunks = footprint.chunks(7_012_002_959_846_526, ChunkPolicy::exact()).expect("it fits");
    assert_eq!(chunks.chunk_length(), 894_822_303);
    let bytes = |length| footprint.chunk_bytes(length, ChunkPolicy::exact());
    assert!(bytes(894_822_303) <= 7_012_002_959_846_526);
    assert!(bytes(894_822_304) > 7_012_002_959_846_526, "what floating point says");
}

/// The formula of cubie, which is meant to say the same, is off by at most a run.
#[test]
fn the_floating_point_formula_is_off_by_at_most_one_run() {
    let mut numbers = Numbers(3);
    let mut differs = 0;
    for _ in 0..200_000 {
        let runs = 2 + numbers.up_to_bits(24);
        let per_run = 1 + numbers.up_to_bits(16);
        let fixed = numbers.up_to_bits(30);
        let length = 1 + numbers.below(runs - 1);
        let available = fixed + length * per_run + numbers.below(3) - 1;
        let footprint = RunFootprint::new(runs).array(RunArray::new(per_run.into()));
        let footprint = footprint.fixed(fixed.into());
        let Ok(chunks) = footprint.chunks(available.into(), ChunkPolicy::exact()) else { continue };
        let ratio = (runs * per_run) as f64 / (available - fixed) as f64;
        let float = (runs as f64 / ratio).floor() as u64;
        if chunks.chunks() > 1 && float != chunks.chunk_length() {
            assert!(float.abs_diff(chunks.chunk_length()) == 1);
            differs += 1;
        }
    }
    assert!(differs > 0, "or the integers were not worth it");
}

#[test]
fn the_documented_case_of_cubie_comes_out() -> Result<(), ManagerError> {
    let footprint = RunFootprint::new(400).array(RunArray::new(4));
    let chunks = footprint.chunks(1599, ChunkPolicy::exact())?;
    assert_eq!((chunks.chunk_length(), chunks.chunks(), chunks.last_length()), (399, 2, 1));
    let all = footprint.chunks(1600, ChunkPolicy::exact())?;
    assert_eq!((all.chunk_length(), all.chunks()), (400, 1), "as much as there is fits");
    Ok(())
}

#[test]
fn chunks_cover_the_runs_once_and_the_last_is_not_empty() {
    for runs in 1..60 {
        for length in 1..70 {
            let chunks = ChunkParameters::of(runs, length);
            let covered: Vec<u64> = chunks.iter().flatten().collect();
            assert_eq!(covered, (0..runs).collect::<Vec<_>>());
            assert!(chunks.iter().all(|range| !range.is_empty()));
            assert_eq!(
                chunks.iter().last().map(|range| range.end - range.start),
                Some(chunks.last_length())
            );
        }
    }
    let chunks = ChunkParameters::of(10, 4);
    let beyond = ManagerError::ChunkOutOfRange { chunk: 3, chunks: 3 };
    assert_eq!(chunks.range(3), Err(beyond));
    assert!(chunks.range(u64::MAX).is_err());
    assert_eq!(ChunkParameters::of(0, 0).chunks(), 1);
    assert_eq!(ChunkParameters::of(u64::MAX, 2).last_length(), 1, "no overflow");
}

#[test]
fn refusals_say_what_is_needed_and_what_there_is() {
    let exact = ChunkPolicy::exact();
    let runs = RunFootprint::new(10).array(RunArray::new(100));
    assert_eq!(
        RunFootprint::new(10).fixed(50).chunks(49, exact),
        Err(ManagerError::NothingToChunk { needed: 50, available: 49 })
    );
    assert_eq!(
        runs.clone().fixed(50).chunks(50, exact),
        Err(ManagerError::UnchunkableTooLarge { needed: 50, available: 50 })
    );
    assert_eq!(
        runs.chunks(99, exact),
        Err(ManagerError::SingleRunTooLarge { needed: 100, available: 99 })
    );
    // cubie says here that unchunkable arrays need 0 bytes.
    assert_eq!(
        runs.chunks(0, exact),
        Err(ManagerError::SingleRunTooLarge { needed: 100, available: 0 })
    );
}

#[test]
fn chunks_are_balanced_aligned_and_long_enough_if_wanted() -> Result<(), ManagerError> {
    let footprint = RunFootprint::new(1000).array(RunArray::new(10));
    let policy = ChunkPolicy::exact().balanced(true);
    let chunks = footprint.chunks(9990, policy)?;
    assert_eq!((chunks.chunk_length(), chunks.chunks(), chunks.last_length()), (500, 2, 500));
    let chunks = footprint.chunks(9990, policy.multiple(32))?;
    assert_eq!((chunks.chunk_length(), chunks.chunks(), chunks.last_length()), (512, 2, 488));
    assert!(footprint.chunks(310, policy.multiple(32)).is_err(), "31 runs are no warp");
    assert!(footprint.chunks(310, policy.min_length(31)).is_ok());
    assert!(footprint.chunks(310, policy.min_length(32)).is_err());
    let mut numbers = Numbers(4);
    for _ in 0..50_000 {
        let (runs, multiple) = (1 + numbers.below(5000), 1 + numbers.below(64));
        let footprint = RunFootprint::new(runs).array(RunArray::new(1));
        let available = u128::from(1 + numbers.below(runs));
        let policy = ChunkPolicy::exact().multiple(multiple);
        let Ok(longest) = footprint.chunks(available, policy) else { continue };
        let balanced = footprint.chunks(available, policy.balanced(true))?;
        assert_eq!(balanced.chunks(), longest.chunks());
        assert!(balanced.chunk_length() <= longest.chunk_length());
        assert!(balanced.chunks() == 1 || balanced.chunk_length() % multiple == 0);
    }
    Ok(())
}

#[test]
fn two_buffers_halve_the_chunk_unless_everything_fits() -> Result<(), ManagerError> {
    let footprint = RunFootprint::new(100).array(RunArray::new(10));
    let policy = ChunkPolicy::exact().buffers(2);
    assert_eq!(footprint.chunks(1000, policy)?.chunks(), 1);
    assert_eq!(footprint.chunks(999, policy)?.chunk_length(), 49);
    assert_eq!(footprint.chunk_bytes(49, policy), 980);
    Ok(())
}

#[test]
fn what_is_rounded_by_the_allocator_is_counted_rounded() -> Result<(), ManagerError> {
    let footprint = RunFootprint::new(100).array(RunArray::new(100)).array(RunArray::new(1));
    let policy = ChunkPolicy::exact().granularity_bytes(512);
    let chunks = footprint.chunks(2048, policy)?;
    assert_eq!(chunks.chunk_length(), 15, "1536 and 512, not 2020 and 20");
    assert_eq!(footprint.chunk_bytes(15, policy), 2048);
    assert_eq!(footprint.chunks(2048, policy.margin_bytes(1))?.chunk_length(), 10);
    let bytes = |bytes| RunFootprint::new(1).fixed(bytes).whole_bytes(ChunkPolicy::default());
    assert_eq!((bytes(1), bytes(1 << 20), bytes((1 << 20) + 1)), (512, 1 << 20, 2 << 20));
    assert_eq!(bytes(3 << 20), 4 << 20, "as drivers hand it out");
    Ok(())
}

#[test]
fn arrays_of_a_fixed_size_are_added_up_as_the_allocator_rounds_them() {
    let footprint = RunFootprint::new(400).array(RunArray::new(4)).fixed(100).fixed(600);
    assert_eq!(footprint.fixed_bytes(ChunkPolicy::exact()), 700);
    let rounded = ChunkPolicy::exact().granularity_bytes(512);
    assert_eq!(footprint.fixed_bytes(rounded), 512 + 1024);
}

#[test]
fn policies_and_arrays_are_what_they_were_made_of() {
    let cubie = ChunkPolicy::exact().headroom_permille(20).granule_bytes(33_554_432);
    assert_eq!(ChunkPolicy::cubie(), cubie.balanced(true));
    let headroom = |parts| ChunkPolicy::exact().headroom_permille(parts);
    assert_eq!(headroom(1001), headroom(1000), "more than all is all");
    assert_ne!(headroom(999), headroom(1000));
    assert_eq!([8, 0].map(|bytes| RunArray::new(bytes).bytes_per_run()), [8, 0]);
}
