//! Claims about documents.

use super::*;

fn error(text: &str) -> String {
    GpuProfile::from_toml(text).expect_err("refused").to_string()
}

#[test]
fn a_document_survives_being_written_and_read() {
    for profile in GpuProfile::all() {
        let text = profile.to_toml().expect("a document");
        assert_eq!(GpuProfile::from_toml(&text).expect("the same"), profile, "{}", profile.name);
    }
}

#[test]
fn every_figure_of_a_shipped_profile_has_a_source() {
    for profile in GpuProfile::all() {
        let table = toml::Table::try_from(&profile).expect("a document");
        let fields = document::leaves(&table);
        for field in fields.iter().filter(|field| !field.starts_with("sources.")) {
            assert!(profile.sources.of(field).is_some(), "{}: {field}", profile.name);
        }
        for (named, _) in profile.sources.iter() {
            let inside = format!("{named}.");
            let exists = fields.iter().any(|field| field == named || field.starts_with(&inside));
            assert!(exists, "{}: a source for {named}, which is no field", profile.name);
        }
    }
}

#[test]
fn a_document_may_give_only_what_differs() {
    let text = r#"
base = "H200"
name = "slow"
[cost.prefetch]
to_device_byte = 1
warmth = { cold = 5.0 }
"#;
    let slow = GpuProfile::from_toml(text).expect("a profile");
    let mut expected = GpuProfile::h200();
    expected.cost.prefetch.to_device_byte = 1.0;
    expected.cost.prefetch.warmth.cold = 5.0;
    assert_eq!(slow.cost, expected.cost);
    assert_eq!(slow.paging, expected.paging);
}

#[test]
fn what_a_document_takes_from_its_base_is_a_guess() {
    let text = "base = 'h200'\nmemory_bytes = 1_000_000_000\n[cost.prefetch]\ncall = 1.0\n\
                [sources]\n'cost.query' = 'published: somewhere'";
    let profile = GpuProfile::from_toml(text).expect("a profile");
    let evidence = |field| profile.sources.of(field).map(|source| source.evidence);
    assert_eq!(evidence("memory_bytes"), Some(Evidence::Given));
    assert_eq!(evidence("cost.prefetch.call"), Some(Evidence::Given));
    assert_eq!(evidence("cost.prefetch.block"), Some(Evidence::Guess));
    assert_eq!(evidence("cost.query.warmth.cold"), Some(Evidence::Published));
    assert_eq!(evidence("no.such.field"), None);
    let h200 = GpuProfile::h200();
    let source = h200.sources.of("cost.prefetch.block").expect("a source");
    assert_eq!(source.evidence, Evidence::Calibrated);
}

#[test]
fn what_the_driver_sets_for_every_gpu_is_no_guess_on_any() {
    for profile in GpuProfile::all() {
        for field in ["paging.prefetch_threshold_percent", "paging.thrashing.lapse_ns"] {
            let source = profile.sources.of(field).expect("a source");
            assert!(source.evidence.is_founded(), "{}: {field}: {}", profile.name, source.text);
            assert!(source.text.contains("every GPU: nvidia-uvm 580.142"), "{}", source.text);
        }
        let base = &profile.sources.of("paging.thrashing.stamp_ns").expect("a source").evidence;
        assert_eq!(base.is_founded(), profile.name == "h200", "{}: measured there", profile.name);
    }
    // Over two documents, too, and not where the document gives another value.
    let text = "base = 'wsl'\n[paging.thrashing]\nlapse_ns = 400_000";
    let profile = GpuProfile::from_toml(text).expect("a profile");
    let evidence = |field| profile.sources.of(field).map(|source| source.evidence);
    assert_eq!(evidence("paging.thrashing.lapse_ns"), Some(Evidence::Given));
    assert_eq!(evidence("paging.thrashing.nap_ns"), Some(Evidence::Published));
}

#[test]
fn resident_threads_are_those_of_the_compute_capability() {
    // CUDA programming guide, technical specifications per compute capability.
    for profile in GpuProfile::all() {
        let expected = match profile.compute_capability {
            (8, 9) => (1536, 24),
            _ => (2048, 32),
        };
        let arrival = &profile.arrival;
        let given = (arrival.threads_per_multiprocessor, arrival.blocks_per_multiprocessor);
        assert_eq!(given, expected, "{}", profile.name);
        let source = profile.sources.of("arrival.threads_per_multiprocessor").expect("a source");
        assert!(source.evidence.is_founded(), "{}", profile.name);
    }
}

#[test]
fn a_link_of_another_kind_replaces_the_whole_link() {
    let text = "base = 'h200'\n[host_link]\nkind = 'nvlink_c2c'\nnative_atomics = true";
    let profile = GpuProfile::from_toml(text).expect("a profile");
    assert!(profile.host_link.is_coherent() && profile.host_link.has_native_atomics());
}

#[test]
fn unknown_keys_are_refused_by_name_wherever_they_are() {
    for text in [
        "base = 'h200'\nmoon = 1",
        "base = 'h200'\n[cost]\nmoon = 1",
        "base = 'h200'\n[cost.prefetch]\nmoon = 1",
        "base = 'h200'\n[cost.prefetch.warmth]\nmoon = 1",
        "base = 'h200'\n[paging]\nmoon = 1",
        "base = 'h200'\n[paging.thrashing]\nmoon = 1",
        "base = 'h200'\n[host_link]\nmoon = 1",
        "base = 'h200'\n[attributes]\nmoon = 1",
    ] {
        assert!(error(text).contains("moon"), "{text}: {}", error(text));
    }
}

#[test]
fn a_document_without_a_base_is_complete_or_says_how_it_need_not_be() {
    let message = error("name = 'x'");
    assert!(message.contains("missing field") && message.contains("base = \"h200\""), "{message}");
}

#[test]
fn a_base_that_does_not_exist_is_refused_with_those_that_do() {
    let message = error("base = 'abacus'");
    assert!(message.contains("abacus") && message.contains("h200"), "{message}");
    assert!(error("base = 7").contains("name of a profile"));
}

#[test]
fn values_that_make_no_sense_are_refused_with_what_to_do() {
    for (text, field) in [
        ("memory_bytes = 0", "memory_bytes"),
        ("memory_bytes = 1_000_000_000\ncontext_bytes = 1_000_000_000", "context_bytes"),
        ("name = ''", "name"),
        ("compute_capability = [0, 0]", "compute_capability"),
        ("driver_version = 11_080", "driver_version"),
        ("[cost.query]\nrange_attribute = nan", "cost.query.range_attribute"),
        ("[cost.query]\nrange_attribute = -1.0", "cost.query.range_attribute"),
        ("[cost.query.warmth]\nafter_sleep = [1.0, inf, 1.0]", "cost.query.warmth.after_sleep"),
        ("[cost.device_touch]\nfault_gap = 0.0", "cost.device_touch.fault_gap"),
        ("[paging]\nprefetch_threshold_percent = 101", "paging.prefetch_threshold_percent"),
        ("[paging]\nprefetch_min_faults = 0", "paging.prefetch_min_faults"),
        ("[paging.thrashing]\nthreshold = 0", "paging.thrashing.threshold"),
        ("[paging.thrashing]\nstamp_ns = 0", "paging.thrashing.stamp_ns"),
        ("[paging.thrashing]\nlapse_min_ns = 600_000_000", "paging.thrashing.lapse_min_ns"),
        ("[sources]\ncost = 'I think'", "sources.\"cost\""),
    ] {
        let message = error(&format!("base = 'h200'\n{text}"));
        assert!(message.starts_with(&format!("{field} is ")), "{text}: {message}");
        assert!(message.contains("give") || message.contains("begin"), "{message}");
    }
}

#[test]
fn every_figure_has_a_bound_that_its_error_names() {
    for (field, most, more) in [
        ("memory_bytes", "17592186044416", "17592186044417"),
        ("context_bytes", "150107783168", "150107783169"),
        ("host_link.generation", "32", "33"),
        ("host_link.lanes", "32", "33"),
        ("peer_link.generation", "32", "33"),
        ("attributes.mempool_supported_handle_types", "255", "256"),
        ("attributes.host_numa_id", "1023", "1024"),
        ("driver_version", "99990", "99991"),
        ("paging.prefetch_threshold_percent", "100", "101"),
        ("paging.prefetch_min_faults", "20", "21"),
        ("paging.access_counters.threshold", "65535", "65536"),
        ("paging.thrashing.threshold", "7", "8"),
        ("paging.thrashing.pin_ns", "10000000000", "10000000001"),
        ("paging.throttled_batches_per_service", "256", "257"),
        ("arrival.multiprocessors", "4096", "4097"),
        ("arrival.threads_per_multiprocessor", "16384", "16385"),
        ("arrival.blocks_per_multiprocessor", "1024", "1025"),
        ("arrival.batch_faults", "16384", "16385"),
        ("arrival.sectors_per_multiprocessor", "4096", "4097"),
        ("arrival.page_writes", "1024", "1025"),
        ("arrival.wave_ns", "10000000000", "10000000001"),
        ("arrival.write_ns", "10000000000", "10000000001"),
        ("arrival.executed.spread_ns", "10000000000", "10000000001"),
        ("arrival.executed.reads_late_after_ns", "10000000000", "10000000001"),
        ("arrival.fills.threads", "1024", "1025"),
        ("arrival.fills.bytes_per_access", "256", "257"),
        ("arrival.fills.parts", "1024", "1025"),
        ("arrival.copies.threads", "1024", "1025"),
        ("arrival.copies.bytes_per_access", "256", "257"),
        ("arrival.copies.parts", "1024", "1025"),
        ("kernels.clock_ghz", "100.0", "100.5"),
        ("kernels.memory", "1000.0", "1000.5"),
        ("kernels.bytes_per_ns", "1000000.0", "1000000.5"),
        ("kernels.access_ns", "100000.0", "100000.5"),
        ("cost.prefetch.call", "10000000000.0", "10000000001.0"),
        ("cost.prefetch.to_device_byte", "1000.0", "1000.5"),
    ] {
        let with = |value| format!("base = 'h200'\n{field} = {value}");
        GpuProfile::from_toml(&with(most)).unwrap_or_else(|why| panic!("{field}: {why}"));
        let message = error(&with(more));
        assert!(message.starts_with(&format!("{field} is {more}")), "{message}");
        assert!(message.contains(most.trim_end_matches(".0")), "{message}");
    }
}

#[test]
fn both_waves_are_bounded_and_so_are_texts() {
    let waves = |waves| format!("base = 'h200'\n[arrival]\nwave_slots = {waves}");
    GpuProfile::from_toml(&waves("[16_384, 16_384]")).expect("at the bound");
    assert!(error(&waves("[16_385, 1]")).starts_with("arrival.wave_slots[0] is 16385"));
    assert!(error(&waves("[1, 16_385]")).starts_with("arrival.wave_slots[1] is 16385"));
    let name = |bytes| format!("base = 'h200'\nname = '{}'", "x".repeat(bytes));
    GpuProfile::from_toml(&name(256)).expect("at the bound");
    assert!(error(&name(257)).starts_with("name is 257 bytes long: give at most 256"));
}

#[test]
fn a_profile_changed_in_code_is_checked_when_the_machine_is_made() {
    let mut gpu = GpuProfile::h200();
    gpu.memory_bytes = 0;
    let error = crate::SimBackend::new(crate::SimConfig::new(gpu)).expect_err("refused");
    assert_eq!(error.kind(), pagewise_hal::ErrorKind::InvalidValue);
    assert!(error.to_string().contains("memory_bytes"), "{error}");
}
