//! The CUDA back end without a GPU: over the simulated driver, by the driver's C ABI.
#![cfg(target_os = "linux")]

use std::num::NonZero;

use pagewise::{
    Advice, AllocationType, AttachFlags, Backend, BackendExt, BatchSupport, Capabilities, Code,
    DeviceAccess, DeviceAttribute, DeviceId, DeviceTouch, DriverVersion, ErrorKind, EventFlags,
    GpuProfile, HandleTypes, HostAccess, HostTouch, KernelAccesses, KernelParam, LaunchShape,
    Location, LocationKind, PointerAttribute, PoolAttribute, PoolHandle, PoolProps, RangeAttribute,
    SimBackend, SimConfig, Span, StreamFlags, StreamHandle,
};
use pagewise_cuda::CudaBackend;
use pagewise_tests::driver::{SimulatedDriver, WRITE_KERNEL};
use pagewise_tests::handles::{calls_with_event, calls_with_pool, calls_with_stream, own_event};
use pagewise_tests::{CLAIMS, CLAIMS_WITHOUT_CONCURRENT_ACCESS, Claim, with_claims};

const VERSIONS: [i32; 6] = [12000, 12020, 12080, 12090, 13000, 13020];

/// Checks a claim over a new machine.
fn check(claim: fn(&dyn Backend), options: &str, ceiling: Option<DriverVersion>) {
    let driver = SimulatedDriver::load();
    driver.reset(options);
    let builder = match ceiling {
        Some(ceiling) => driver.builder().max_version(ceiling),
        None => driver.builder(),
    };
    claim(&builder.open().expect("a simulated driver opens"));
}

/// Checks claims one after another; all that do not hold are in the message.
fn check_all(claims: &[Claim], options: &str) {
    let fails =
        |(_, claim): &&Claim| std::panic::catch_unwind(|| check(*claim, options, None)).is_err();
    let failed: Vec<_> = claims.iter().filter(fails).map(|(name, _)| name).collect();
    assert!(failed.is_empty(), "{options}: claims that do not hold: {failed:?}");
}

/// Makes a module of tests: each claim over a simulated driver with options, and a ceiling or none.
macro_rules! over {
    ($place:ident $options:literal $ceiling:expr, $($module:ident::$claim:ident)*) => {
        mod $place {
            use super::*;

            $(
                #[test]
                fn $claim() {
                    check(|it| pagewise_tests::$module::$claim(it), $options, $ceiling);
                }
            )*
        }
    };
}

macro_rules! everywhere {
    (on_every_machine { $($module:ident::$claim:ident)* }
     with_concurrent_access { $($other_module:ident::$other:ident)* }) => {
        everywhere! { @places $($module::$claim)* $($other_module::$other)* }
    };
    (@places $($claim:tt)*) => {
        over! { of_cuda_12_0 "version=12000" None, $($claim)* }
        over! { of_cuda_12_2 "version=12020" None, $($claim)* }
        over! { of_cuda_12_8 "version=12080" None, $($claim)* }
        over! { of_cuda_12_9 "version=12090" None, $($claim)* }
        over! { of_cuda_13_0 "version=13000" None, $($claim)* }
        over! { of_cuda_13_2 "version=13020" None, $($claim)* }
        over! { acting_as_cuda_12_0 "version=13020" Some(DriverVersion(12000)), $($claim)* }
        over! { acting_as_cuda_12_2 "version=13020" Some(DriverVersion(12020)), $($claim)* }
        over! { acting_as_cuda_12_8 "version=13020" Some(DriverVersion(12080)), $($claim)* }
        over! { acting_as_cuda_12_9 "version=13020" Some(DriverVersion(12090)), $($claim)* }
        over! { acting_as_cuda_13_0 "version=13020" Some(DriverVersion(13000)), $($claim)* }
        over! { acting_as_cuda_13_2 "version=13020" Some(DriverVersion(13020)), $($claim)* }
        over! { with_several_devices "devices=4" None, $($claim)* }
    };
}
with_claims!(everywhere);

#[test]
fn claims_hold_on_every_profile() {
    let driver = SimulatedDriver::load();
    for profile in GpuProfile::all() {
        let options = format!("profile={}", profile.name);
        let concurrent = driver.fresh(&options).capabilities().concurrent_managed_access;
        let claims = if concurrent { CLAIMS } else { CLAIMS_WITHOUT_CONCURRENT_ACCESS };
        check_all(claims, &options);
    }
}

/// The abilities in which the simulator and a driver of the same version may not differ.
fn common(capabilities: Capabilities) -> Capabilities {
    let mut capabilities = capabilities;
    capabilities.backend = String::new();
    capabilities.deterministic = false;
    capabilities.kernels = true;
    capabilities.declared_kernels = false;
    capabilities.traced_launches = false;
    capabilities.pool_self_import = false;
    capabilities.range_attributes_by_page = false;
    capabilities
}

#[test]
fn a_ceiling_gives_the_capabilities_of_a_driver_of_that_version() {
    let driver = SimulatedDriver::load();
    for version in VERSIONS.map(DriverVersion) {
        let native = driver.fresh(&format!("version={}", version.0)).capabilities();
        driver.reset("version=13020");
        let capped = driver.builder().max_version(version).open().expect("opens");
        assert_eq!(capped.capabilities(), native);
        assert_eq!(capped.driver_version(), Ok(DriverVersion::CUDA_13_2));
        let sim = SimBackend::new(SimConfig::h200().driver_version(version)).expect("room");
        assert_eq!(common(native), common(sim.capabilities()));
    }
}

#[test]
fn no_more_than_the_first_devices_are_shown_on_request() {
    let driver = SimulatedDriver::load();
    driver.reset("devices=3");
    for (most, shown) in [(1, 1), (2, 2), (3, 3), (9, 3)] {
        let most = NonZero::new(most).expect("not 0");
        let capped = driver.builder().max_devices(most).open().expect("opens");
        assert_eq!(capped.device_count(), Ok(shown));
        let behind = capped.memory_info(DeviceId(shown.cast_signed()));
        assert_eq!(behind.map_err(|error| error.kind()).err(), Some(ErrorKind::InvalidDevice));
    }
}

#[test]
fn a_ceiling_gives_the_device_attributes_of_a_driver_of_that_version() {
    let known = [
        (DeviceAttribute::MANAGED_MEMORY, 12000),
        (DeviceAttribute::HOST_NUMA_ID, 12020),
        (DeviceAttribute::HOST_NUMA_MEMORY_POOLS_SUPPORTED, 12090),
        (DeviceAttribute::HOST_MEMORY_POOLS_SUPPORTED, 13000),
    ];
    let driver = SimulatedDriver::load();
    for version in VERSIONS {
        driver.reset("version=13020");
        let ceiling = DriverVersion(version);
        let capped = driver.builder().max_version(ceiling).open().expect("opens");
        for (attribute, since) in known {
            let answer = capped.device_attribute(DeviceId(0), attribute);
            let code = answer.as_ref().err().map(pagewise::Error::code);
            let expected = (version < since).then_some(Some(1));
            assert_eq!(code, expected, "{attribute:?} at {version}: {answer:?}");
        }
        drop(capped);
        let native = driver.fresh(&format!("version={version}"));
        for (attribute, since) in known {
            let answer = native.device_attribute(DeviceId(0), attribute);
            assert_eq!(answer.is_ok(), version >= since, "{attribute:?} at {version}");
        }
    }
}

#[test]
fn a_loop_refuses_numa_nodes_that_the_host_lacks_before_anything_is_submitted() {
    let driver = SimulatedDriver::load();
    let stream = StreamHandle::PER_THREAD;
    let nodes = pagewise_cuda::host_numa_nodes();
    let (there, absent) = (nodes[0], nodes[nodes.len() - 1] + 1);
    for version in [12020, 12080, 12090] {
        let backend = driver.fresh(&format!("version={version}"));
        let span = backend.alloc(4 << 20).expect("memory");
        let to = |node| {
            let places = [Location::HOST, Location::host_numa(node)];
            backend.prefetch_batch(&[span, span], &places, &[0, 1], 0, stream)
        };
        for node in [absent, -1, i32::MAX] {
            let error = to(node).expect_err("no such node");
            assert_eq!((error.kind(), error.code()), (ErrorKind::InvalidValue, Some(1)));
            assert!(error.to_string().contains("NUMA node"), "{error}");
        }
        let last = |attribute| backend.range_attribute(span, attribute);
        assert_eq!(last(RangeAttribute::LAST_PREFETCH_LOCATION), Ok(Location::ORDINAL_INVALID));
        to(there).expect("a node of the host");
        let kind = last(RangeAttribute::LAST_PREFETCH_LOCATION_TYPE);
        assert_eq!(kind, Ok(LocationKind::HOST_NUMA.0));
        // SAFETY: no work uses the memory, and it is freed once.
        unsafe { backend.free(span.ptr) }.expect("live");
    }
}

#[test]
fn each_missing_entry_point_takes_away_what_needs_it_and_nothing_else() {
    type Change = fn(&mut Capabilities);
    let cases: [(&str, Change); 9] = [
        ("cuMemAdvise@12020", |found| found.locations = false),
        ("cuMemPrefetchAsync@12020", |found| found.locations = false),
        ("cuMemPrefetchBatchAsync", |found| found.prefetch_batch = BatchSupport::Loop),
        ("cuMemcpyBatchAsync", |found| found.copy_batch = BatchSupport::Loop),
        ("cuMemDiscardBatchAsync", |found| found.discard = false),
        ("cuMemDiscardAndPrefetchBatchAsync", |found| found.discard = false),
        ("cuMemGetDefaultMemPool", |found| found.location_pools = false),
        ("cuMemGetMemPool", |found| found.location_pools = false),
        ("cuMemSetMemPool", |found| found.location_pools = false),
    ];
    let driver = SimulatedDriver::load();
    let all = driver.fresh("").capabilities();
    for (hidden, change) in cases {
        let mut expected = all.clone();
        change(&mut expected);
        let options = format!("hide={hidden}");
        assert_eq!(driver.fresh(&options).capabilities(), expected, "{hidden}");
        // No driver has the calls of 13.0 without those of 12.2: claims need not foresee it.
        if expected.locations {
            check_all(CLAIMS, &options);
        }
    }
}

/// Opening the driver fails: kind, number, and words that say what to do.
#[track_caller]
fn assert_refused(
    driver: &std::sync::Arc<SimulatedDriver>,
    options: &str,
    code: Option<i32>,
    words: &str,
) {
    driver.reset(options);
    let error = driver.builder().open().expect_err(options);
    assert_eq!((error.kind(), error.code()), (ErrorKind::LibraryMissing, code), "{error}");
    assert!(error.to_string().contains(words), "{error}");
}

#[test]
fn each_unusable_driver_is_refused_with_what_to_do() {
    let driver = SimulatedDriver::load();
    assert_refused(&driver, "version=11.8", None, "11.8; 12.0 or later is needed: update");
    assert_refused(&driver, "init=34", Some(34), "toolkit's stub");
    assert_refused(&driver, "devices=0", Some(100), "sees no GPU");
    assert_refused(
        &driver,
        "hide=cuMemFree hide=cuStreamCreate",
        None,
        "cuMemFree, cuStreamCreate",
    );
    driver.reset("init=803");
    let error = driver.builder().open().expect_err("a mismatch");
    assert_eq!(error.code(), Some(803));
    assert!(error.to_string().contains("reboot"), "{error}");
    driver.reset("");
    let error = driver.builder().max_version(DriverVersion(11080)).open().expect_err("too low");
    assert_eq!(error.kind(), ErrorKind::InvalidValue);
}

#[test]
fn every_required_entry_point_is_missed_by_name() {
    let driver = SimulatedDriver::load();
    driver.reset("");
    let probe = pagewise_cuda::probe_library(driver.path()).expect("a driver");
    assert_eq!(probe.devices, Ok(1));
    let required = probe.entry_points.iter().filter(|entry| entry.required);
    let names: Vec<&str> = required.map(|entry| entry.name).collect();
    assert!(names.len() >= 50, "{names:?}");
    for name in names {
        driver.reset(&format!("hide={name}"));
        let error = driver.builder().open().expect_err(name);
        assert_eq!(error.kind(), ErrorKind::LibraryMissing, "{name}: {error}");
        assert!(error.to_string().contains(name), "{error}");
    }
}

#[test]
fn every_thread_has_the_context_that_its_calls_need() {
    let driver = SimulatedDriver::load();
    let backend = driver.fresh("devices=3");
    std::thread::scope(|scope| {
        for thread in 0..6 {
            let backend = &backend;
            scope.spawn(move || {
                for step in 0..30 {
                    let device = DeviceId((thread + step) % 3);
                    let ptr = backend.alloc_device(device, 4096).expect("device memory");
                    let ordinal = PointerAttribute::DEVICE_ORDINAL;
                    let owner = backend.pointer_attribute(ptr, ordinal);
                    assert_eq!(owner, Ok(device.0 as u64));
                    let managed = backend.alloc_managed(4096, AttachFlags::GLOBAL).expect("memory");
                    // SAFETY: no work uses the memory, and it is freed once.
                    unsafe {
                        backend.free(ptr).expect("live");
                        backend.free(managed).expect("live");
                    }
                }
            });
        }
    });
}

#[test]
fn work_on_a_stream_runs_in_the_streams_context() {
    let driver = SimulatedDriver::load();
    let backend = driver.fresh("devices=3");
    let span = backend.alloc(4 << 20).expect("memory");
    for device in [2, 0, 1].map(DeviceId) {
        let stream = backend.stream_create(device, StreamFlags::NON_BLOCKING).expect("a stream");
        let access = DeviceAccess::AtomicAdd;
        let (stride_bytes, blocks, threads) = (4, 16, 64);
        let touch = DeviceTouch { device, span, stride_bytes, access, blocks, threads };
        let elsewhere = DeviceTouch { device: DeviceId((device.0 + 1) % 3), ..touch };
        // SAFETY: no other code uses the memory.
        unsafe {
            backend.memset(span, 3, stream).expect("inside");
            assert_eq!(backend.device_touch(touch, stream), Ok(0));
            let read = DeviceTouch { access: DeviceAccess::Read, stride_bytes: 1, ..touch };
            let words = span.bytes / 4;
            assert_eq!(backend.device_touch(read, stream), Ok(words * (4 * 3 + 1)));
            let error = backend.device_touch(elsewhere, stream).expect_err("another's stream");
            assert_eq!(error.kind(), ErrorKind::InvalidHandle);
            backend.stream_destroy(stream).expect("live");
        }
    }
    // SAFETY: no work uses the memory, and it is freed once.
    unsafe { backend.free(span.ptr) }.expect("live");
}

/// The simulated driver knows the touch kernels, of whatever module.
#[test]
fn a_kernel_of_a_module_runs_on_the_device_that_it_was_loaded_on() {
    let driver = SimulatedDriver::load();
    let backend = driver.fresh("devices=2");
    let span = backend.alloc(8192).expect("memory");
    let params = |places: u64| {
        let numbers = [places.to_ne_bytes(), 4096_u64.to_ne_bytes()].map(KernelParam::new);
        let [places, stride] = numbers;
        let value = KernelParam::new(9_u32.to_ne_bytes());
        [KernelParam::from(span.ptr), places, stride, value, KernelParam::from(span.ptr)]
    };
    let shape = LaunchShape::linear(1, 1);
    // SAFETY: the text is no cubin, the parameters are those of the kernel, which writes memory that
    // no other code uses, and nothing runs when the module goes.
    unsafe {
        let module = backend.module_load(DeviceId(1), WRITE_KERNEL.as_bytes()).expect("PTX");
        let missing = backend.module_function(module, "vector_add").expect_err("no such kernel");
        assert_eq!(missing.code(), Some(Code::NOT_FOUND));
        let write = backend.module_function(module, "pagewise_write").expect("a touch kernel");
        backend.launch(write, shape, &params(2), StreamHandle::NULL).expect("the default stream");
        let here = backend.stream_create(DeviceId(1), StreamFlags::NON_BLOCKING).expect("a stream");
        backend.launch(write, shape, &params(2), here).expect("its own stream");
        backend.stream_synchronize(here).expect("done");
        let read = HostTouch { span, stride_bytes: 4096, access: HostAccess::Read };
        assert_eq!(backend.host_touch(read), Ok(18));
        let empty = LaunchShape { grid: [0, 1, 1], ..shape };
        assert!(backend.launch(write, empty, &params(2), here).is_err());
        backend.module_unload(module).expect("live");
        for code in [
            backend.module_unload(module).map(drop),
            backend.module_function(module, "pagewise_write").map(drop),
            backend.launch(write, shape, &params(2), here),
        ] {
            assert_eq!(code.expect_err("unloaded").kind(), ErrorKind::InvalidHandle);
        }
        backend.stream_destroy(here).expect("live");
        backend.free(span.ptr).expect("live");
    }
}

#[test]
fn wrong_modules_are_refused_before_the_driver_is_asked() {
    let driver = SimulatedDriver::load();
    let elsewhere = SimulatedDriver::load();
    let (backend, other) = (driver.fresh("devices=1"), elsewhere.fresh("devices=1"));
    let walks = Vec::new();
    let kernel = KernelAccesses { device: DeviceId(0), blocks: 1, threads: 1, walks };
    // SAFETY: the text is no cubin, no kernel runs, and no memory is accessed.
    unsafe {
        let error = backend.module_load(DeviceId(0), b"").expect_err("empty");
        assert_eq!((error.kind(), error.code()), (ErrorKind::InvalidValue, Some(1)));
        let nowhere = backend.module_load(DeviceId(7), b"x").expect_err("no such device");
        assert_eq!(nowhere.kind(), ErrorKind::InvalidDevice);
        let module = backend.module_load(DeviceId(0), WRITE_KERNEL.as_bytes()).expect("PTX");
        let error = backend.module_function(module, "a\0b").expect_err("a NUL");
        assert_eq!((error.kind(), error.code()), (ErrorKind::InvalidValue, Some(1)));
        let foreign = other.module_function(module, "pagewise_read").expect_err("of another");
        assert_eq!(foreign.kind(), ErrorKind::InvalidHandle);
        backend.module_unload(module).expect("live");
        let error = backend.kernel_accesses(&kernel, StreamHandle::NULL).expect_err("a driver");
        assert_eq!((error.kind(), error.code()), (ErrorKind::Unsupported, Some(801)));
    }
    assert!(backend.capabilities().kernels);
}

/// Driver 580 crashes if an older pool goes first, and pools are the process's, not a back end's.
#[test]
fn managed_pools_of_two_back_ends_over_one_driver_are_destroyed_youngest_first() {
    let [driver, other] = [(); 2].map(|()| SimulatedDriver::load());
    let first = driver.fresh("");
    let second = driver.builder().open().expect("a second back end over the same library");
    let elsewhere = other.fresh("");
    let make = |backend: &CudaBackend| {
        let props = PoolProps {
            allocation_type: AllocationType::MANAGED,
            location: Location::HOST,
            handle_types: HandleTypes::empty(),
            max_bytes: 0,
        };
        backend.pool_create(props).expect("CUDA 13.0")
    };
    // SAFETY: no memory was allocated from the pools, and a handle of a destroyed pool is only
    // passed to a query, which refuses it.
    let destroy = |backend: &CudaBackend, pool| unsafe { backend.pool_destroy(pool) };
    let lives = |pool: PoolHandle| {
        // SAFETY: the simulated driver looks handles up and dereferences none, so a destroyed
        // pool's is refused.
        let pool = unsafe { PoolHandle::from_raw(pool.as_raw()) };
        second.pool_attribute(pool, PoolAttribute::RELEASE_THRESHOLD).is_ok()
    };

    let (old, young) = (make(&first), make(&second));
    assert_eq!(destroy(&first, old), Ok(()));
    assert!(lives(old), "the driver keeps it until the younger one of the other back end is gone");
    drop(first);
    assert_eq!(destroy(&second, young), Ok(()));
    assert!(!lives(young) && !lives(old), "and then it goes, whoever made it");

    let alone = make(&second);
    let _younger_elsewhere = make(&elsewhere);
    assert_eq!(destroy(&second, alone), Ok(()));
    assert!(!lives(alone), "pools of another library do not keep it");
}

#[test]
fn contexts_are_released_and_a_later_back_end_finds_its_own() {
    let driver = SimulatedDriver::load();
    driver.reset("devices=2");
    for _ in 0..3 {
        let backend = driver.builder().open().expect("opens");
        backend.prepare_device(DeviceId(1)).expect("a device");
        let ptr = backend.alloc_device(DeviceId(1), 4096).expect("memory");
        // SAFETY: no work uses the memory, and it is freed once.
        unsafe { backend.free(ptr) }.expect("live");
        assert_eq!(driver.retained(), 2);
        drop(backend);
        assert_eq!(driver.retained(), 0);
    }
}

#[test]
fn somebody_elses_context_is_noticed_where_it_was_announced() {
    let driver = SimulatedDriver::load();
    driver.reset("devices=2");
    let backend = driver.builder().foreign_contexts(true).open().expect("opens");
    backend.prepare_device(DeviceId(1)).expect("a device");
    let total = |device| backend.alloc_device(DeviceId(device), 512).expect("memory");
    let first = total(0);
    driver.make_current(1);
    let second = total(0);
    for ptr in [first, second] {
        let owner = backend.pointer_attribute(ptr, PointerAttribute::DEVICE_ORDINAL);
        assert_eq!(owner, Ok(0));
        // SAFETY: no work uses the memory, and it is freed once.
        unsafe { backend.free(ptr) }.expect("live");
    }
}

#[test]
fn a_thread_whose_context_was_taken_away_gets_it_back() {
    let driver = SimulatedDriver::load();
    let backend = driver.fresh("");
    let span = backend.alloc(4096).expect("memory");
    let (stream, host) = (StreamHandle::PER_THREAD, [Location::HOST]);
    // SAFETY: no code uses the memory or reads its contents.
    let calls: [&dyn Fn() -> pagewise::Result<()>; 5] = unsafe {
        [
            &|| backend.prefetch(span, Location::HOST, 0, stream),
            &|| backend.prefetch_batch(&[span], &host, &[0], 0, stream),
            &|| backend.discard_prefetch_batch(&[span], &host, &[0], 0, stream),
            &|| backend.discard_batch(&[span], 0, stream),
            &|| backend.free(span.ptr),
        ]
    };
    for call in calls {
        driver.make_none_current();
        call().expect("the context is made current again");
    }
}

#[test]
fn before_12_2_a_numa_location_is_refused_with_the_reason_and_nothing_is_done() {
    let driver = SimulatedDriver::load();
    let backend = driver.fresh("version=12.0");
    let span = backend.alloc(4 << 20).expect("memory");
    let numa = Location::host_numa(0);
    let stream = StreamHandle::PER_THREAD;
    let answers = [
        backend.advise(span, Advice::SET_PREFERRED_LOCATION, numa),
        backend.prefetch(span, numa, 0, stream),
        backend.prefetch_batch(&[span, span], &[Location::HOST, numa], &[0, 1], 0, stream),
    ];
    for answer in answers {
        let error = answer.expect_err("no entry point");
        assert_eq!((error.kind(), error.code()), (ErrorKind::Unsupported, None));
        assert!(error.to_string().contains("host NUMA node"), "{error}");
    }
    let last = backend.range_attribute(span, RangeAttribute::LAST_PREFETCH_LOCATION);
    assert_eq!(last, Ok(Location::ORDINAL_INVALID));
    // SAFETY: no work uses the memory, and it is freed once.
    unsafe { backend.free(span.ptr) }.expect("live");
}

#[test]
fn a_refused_batch_names_the_item_on_every_version() {
    let driver = SimulatedDriver::load();
    for version in VERSIONS {
        let backend = driver.fresh(&format!("version={version}"));
        let span = backend.alloc(4 << 20).expect("memory");
        let past = Span::new(span.ptr, span.bytes + 1);
        let stream = StreamHandle::PER_THREAD;
        let spans = [span, past];
        let answer = backend.prefetch_batch(&spans, &[Location::HOST], &[0], 0, stream);
        let error = answer.expect_err("a bad range");
        assert_eq!((error.code(), error.item(), error.span()), (Some(1), Some(1), Some(past)));
        assert!(error.to_string().contains("passes the end"), "{error}");
        // SAFETY: no work uses the memory, and it is freed once.
        unsafe { backend.free(span.ptr) }.expect("live");
    }
}

#[test]
fn a_loop_that_fails_midway_says_what_was_submitted() {
    let driver = SimulatedDriver::load();
    for version in [12000, 12020, 12090] {
        let backend = driver.fresh(&format!("version={version} fail_prefetch=3:999"));
        let span = backend.alloc(4 << 20).expect("memory");
        let part = |index: u64| Span::new(span.ptr.offset(index << 20), 1 << 20);
        let spans = [0, 1, 2, 3].map(part);
        let stream = StreamHandle::PER_THREAD;
        let answer = backend.prefetch_batch(&spans, &[Location::HOST], &[0], 0, stream);
        let error = answer.expect_err("the third fails");
        assert_eq!((error.code(), error.item()), (Some(999), Some(2)));
        assert_eq!(error.span(), Some(spans[2]));
        let text = error.to_string();
        assert!(text.contains("the 2 ranges before this one were submitted"), "{text}");
        let last = |span| backend.range_attribute(span, RangeAttribute::LAST_PREFETCH_LOCATION);
        assert_eq!(spans.map(last), [Ok(-1), Ok(-1), Ok(-2), Ok(-2)]);
        // SAFETY: no work uses the memory, and it is freed once.
        unsafe { backend.free(span.ptr) }.expect("live");
    }
}

/// Which handles the driver itself refuses is another matter: a real one crashes.
#[test]
fn handles_of_another_back_end_are_refused_without_asking_the_driver() {
    let [driver, other] = [(); 2].map(|()| SimulatedDriver::load());
    let backend = driver.fresh("");
    let cuda = other.fresh("");
    let second = driver.builder().open().expect("a second back end over the same library");
    let sim = SimBackend::new(SimConfig::h200()).expect("room");
    let elsewhere: [&dyn Backend; 3] = [&cuda, &second, &sim];
    let device = DeviceId(0);
    for (which, from) in elsewhere.into_iter().enumerate() {
        // Machines number alike, and this one makes some of its own: take a number beyond those.
        let make_stream = || from.stream_create(device, StreamFlags::NON_BLOCKING);
        let stream = [(); 64].map(|()| make_stream().expect("a stream"))[63];
        let event = from.event_create(device, EventFlags::empty()).expect("an event");
        from.event_record(event, stream).expect("live");
        let mut answers = calls_with_stream(&backend, stream);
        let own = own_event(&backend);
        answers.extend(calls_with_event(&backend, event, own));
        // SAFETY: the event was made above, and the test does not use it again.
        unsafe { backend.event_destroy(own) }.expect("live");
        for (call, answer) in answers.into_iter().enumerate() {
            let error = answer.expect_err("another's handle");
            assert_eq!(error.code(), Some(400), "{which}, call {call}: {error}");
            assert!(
                error.to_string().contains("of this back end"),
                "{which}, call {call}: {error}"
            );
        }
        // SAFETY: no work is left in the stream, and neither handle is used again.
        unsafe {
            from.event_destroy(event).expect("live");
            from.stream_destroy(stream).expect("live");
        }
    }
    for from in [&cuda as &dyn Backend, &sim] {
        let props = PoolProps {
            allocation_type: AllocationType::PINNED,
            location: Location::device(device),
            handle_types: HandleTypes::empty(),
            max_bytes: 0,
        };
        let make_pool = || from.pool_create(props);
        let pool = [(); 64].map(|()| make_pool().expect("a pool"))[63];
        for (call, answer) in calls_with_pool(&backend, pool).into_iter().enumerate() {
            let error = answer.expect_err("another's handle");
            assert_eq!(error.code(), Some(1), "call {call}: {error}");
            assert!(error.to_string().contains("of this driver"), "call {call}: {error}");
        }
    }
}

#[test]
fn a_handle_that_unsafe_code_vouches_for_goes_to_the_driver() {
    let driver = SimulatedDriver::load();
    let backend = driver.fresh("");
    let foreign = driver.builder().open().expect("a second back end over the same library");
    let stream = foreign.stream_create(DeviceId(0), StreamFlags::NON_BLOCKING).expect("a stream");
    assert!(backend.stream_synchronize(stream).is_err());
    // SAFETY: the handle names a live stream of the library, which both back ends use.
    let vouched = unsafe { StreamHandle::from_raw(stream.as_raw()) };
    assert_eq!(backend.stream_synchronize(vouched), Ok(()));
    assert_eq!(vouched, stream);
    // SAFETY: no work is left in the stream, and the handle is not used again.
    unsafe { foreign.stream_destroy(vouched) }.expect("live");
    assert!(foreign.stream_synchronize(stream).is_err(), "its copies end with it");
}

/// Each call uses the handle while it is live, or is refused by the back end; the driver never sees
/// a dead one.
#[test]
fn what_one_thread_destroys_while_others_use_it_never_reaches_the_driver_dead() {
    let driver = SimulatedDriver::load();
    let backend = driver.fresh("");
    let device = DeviceId(0);
    for _ in 0..60 {
        let stream = backend.stream_create(device, StreamFlags::NON_BLOCKING).expect("a stream");
        let event = backend.event_create(device, EventFlags::empty()).expect("an event");
        let pool = backend
            .pool_create(PoolProps {
                allocation_type: AllocationType::MANAGED,
                location: Location::HOST,
                handle_types: HandleTypes::empty(),
                max_bytes: 0,
            })
            .expect("a pool");
        let use_all = || {
            let threshold = PoolAttribute::RELEASE_THRESHOLD;
            let answers = [
                backend.stream_synchronize(stream),
                backend.event_query(event).map(drop),
                backend.pool_set_attribute(pool, threshold, 1),
            ];
            let refused = answers.into_iter().filter_map(Result::err).inspect(|error| {
                assert!(error.to_string().contains("destroyed"), "{error}");
            });
            refused.count() == 3
        };
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| while !use_all() {});
            }
            std::thread::yield_now();
            // SAFETY: back ends have to refuse copies of a checked handle that was destroyed, which
            // is the claim.
            unsafe {
                assert_eq!(backend.stream_destroy(stream), Ok(()));
                assert_eq!(backend.event_destroy(event), Ok(()));
                assert_eq!(backend.pool_destroy(pool), Ok(()));
            }
        });
    }
}
