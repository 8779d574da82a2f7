//! A warning when the host cannot hold the memory of the simulated devices.

use std::fs::read_to_string;
use std::sync::Once;

use crate::options::Options;

/// Says on stderr, once, that the devices have more memory than the host can give, if no limit was
/// asked for. A simulated device takes memory of the host when a program fills it, so all works
/// until then.
pub(crate) fn warn_if_short(options: &Options) {
    static ONCE: Once = Once::new();
    if let Some(text) = available_bytes().and_then(|bytes| shortage(options, bytes)) {
        ONCE.call_once(|| eprintln!("simulated CUDA driver: {text}"));
    }
}

/// The warning for a host that has so many bytes available.
fn shortage(options: &Options, available: u64) -> Option<String> {
    if !options.warns || options.limits_memory() {
        return None;
    }
    let each = options.config().gpu().memory_bytes;
    let all = each.saturating_mul(u64::from(options.devices));
    let mib = |bytes: u64| bytes >> 20;
    (all > available).then(|| {
        format!(
            "{} devices of profile {} have {} MiB of memory in all, and the host can give {} MiB: \
             a program that fills them ends for want of memory. The option memory= sets a limit \
             for each device, such as memory=2GiB",
            options.devices,
            options.gpu_name(),
            mib(all),
            mib(available)
        )
    })
}

/// The memory that the host can give to programs, in bytes; `None` where Linux does not say.
fn available_bytes() -> Option<u64> {
    let text = read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn warned(options: &str, available: u64) -> Option<String> {
        shortage(&options.parse().expect("options"), available)
    }

    #[test]
    fn devices_that_the_host_cannot_hold_are_named_with_the_option_that_limits_them() {
        let text = warned("devices=2 profile=h200", 1 << 30).expect("a warning");
        assert!(text.contains("2 devices of profile h200"), "{text}");
        assert!(text.contains("1024 MiB") && text.contains("memory=2GiB"), "{text}");
    }

    #[test]
    fn there_is_no_warning_with_room_a_limit_or_without_a_log() {
        assert_eq!(warned("", 1 << 50), None);
        assert_eq!(warned("memory=8TiB", 1 << 30), None);
        assert_eq!(warned("log=off", 1 << 30), None);
        assert_eq!(warned("devices=0", 1 << 30), None);
    }
}
