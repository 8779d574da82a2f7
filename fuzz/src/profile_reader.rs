//! Hostile profiles: any text, and shipped profiles with figures changed.
//!
//! A profile that is taken must make a machine that works: it moves memory to and fro.

use pagewise_hal::{
    Backend, BackendExt, DeviceAccess, DeviceId, DeviceTouch, HostAccess, HostTouch, Location,
    StreamHandle,
};
use pagewise_sim::{GpuProfile, SimBackend, SimConfig};

use crate::{Choices, Log, NO_CODE};

/// Reads the bytes as a profile: as they are, or as changes of one that ships.
///
/// # Panics
/// If the reader does, or the machine of a profile that it takes.
pub fn attack(choices: &mut Choices<'_>, log: &mut Log) {
    let text = match choices.below(4) {
        0 => String::from_utf8_lossy(choices.rest()).into_owned(),
        1 => override_of(choices),
        _ => changed(choices),
    };
    let read = |text: &str| GpuProfile::from_toml(text);
    let code = |answer: &Result<_, _>| if answer.is_ok() { 0 } else { NO_CODE };
    if let Ok(profile) = log.call("from_toml", || read(&text), code) {
        let written = profile.to_toml().expect("what was read can be written");
        assert_eq!(read(&written).as_ref(), Ok(&profile), "and read again");
        log.call("use", || use_machine(profile), |()| 0);
    }
    let json: Result<GpuProfile, _> = serde_json::from_str(&text);
    if let Ok(profile) = json {
        log.call("new", || SimBackend::new(SimConfig::new(profile)), super::hal::code).ok();
    }
}

/// A few figures over a profile that ships.
fn override_of(choices: &mut Choices<'_>) -> String {
    let base = choices.one_of(&["h200", "H200", "gh200", "wsl", "t4", "nothing"]);
    let mut text = format!("base = '{base}'\nname = 'attack'\n");
    while !choices.is_done() {
        let field = choices.one_of(&[
            "memory_bytes",
            "context_bytes",
            "compute_capability",
            "driver_version",
            "paging.thrashing.nap_ns",
            "paging.thrashing.stamp_ns",
            "paging.throttled_batches_per_service",
            "arrival.multiprocessors",
            "arrival.batch_faults",
            "arrival.fault_ns",
            "arrival.fills.threads",
            "arrival.copies.parts",
            "cost.fixed.alloc",
            "sources.'cost'",
        ]);
        text.push_str(&format!("{field} = {}\n", figure(choices)));
    }
    text
}

fn figure(choices: &mut Choices<'_>) -> String {
    match choices.below(6) {
        0 => "-1".to_owned(),
        1 => "nan".to_owned(),
        2 => "1e308".to_owned(),
        3 => "[9, 0]".to_owned(),
        _ => choices.edge().to_string(),
    }
}

/// A shipped profile in full, with a few of its figures replaced and perhaps a byte changed.
fn changed(choices: &mut Choices<'_>) -> String {
    let profiles = GpuProfile::all();
    let profile = &profiles[choices.below(profiles.len() as u64) as usize];
    let text = profile.to_toml().expect("shipped profiles can be written");
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    for _ in 0..1 + choices.below(3) {
        let at = choices.below(lines.len() as u64) as usize;
        if let Some((key, _)) = lines[at].split_once('=') {
            lines[at] = format!("{key}= {}", figure(choices));
        } else if choices.chance(1, 4) {
            lines.remove(at);
        }
    }
    lines.join("\n")
}

/// Moves memory to the device and back.
fn use_machine(profile: GpuProfile) {
    let Ok(sim) = SimBackend::new(SimConfig::new(profile)) else { return };
    let Ok(span) = sim.alloc(1 << 20) else { return };
    for value in 0..3 {
        let touch = HostTouch { span, stride_bytes: 4096, access: HostAccess::Write(value) };
        // SAFETY: only this function uses the memory, from one thread.
        let _ = unsafe { sim.host_touch(touch) };
        let access = DeviceAccess::Write(value);
        let (device, blocks, threads) = (DeviceId(0), 1 + u32::from(value), 64);
        let touch = DeviceTouch { device, span, stride_bytes: 512, access, blocks, threads };
        // SAFETY: only this function uses the memory, from one thread.
        let _ = unsafe { sim.device_touch(touch, StreamHandle::NULL) };
        // SAFETY: only this function uses the memory, from one thread.
        let _ = unsafe { sim.memset(span, value, StreamHandle::NULL) };
        let _ = sim.prefetch_to(span, Location::HOST);
        let _ = sim.stream_synchronize(StreamHandle::NULL);
    }
}
