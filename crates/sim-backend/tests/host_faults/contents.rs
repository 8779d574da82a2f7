//! The program and the devices read the bytes that the other wrote last.

use pagewise_hal::{BackendExt, DeviceAccess, Location, Span};

use crate::common::{DEVICE, PAGE, device, machine, peek, poke, with_each};

#[test]
fn contents_survive_round_trips() {
    with_each(|config, _| {
        let sim = machine(config);
        let span = sim.alloc(4 << 20).unwrap();
        let page = |number: u64| span.ptr.0 + number * PAGE;
        (0..1024).for_each(|number| poke(page(number), number as u8));
        for round in 1..4_u64 {
            let sum: u64 = (0..1024).map(|number| (number + round - 1) % 256).sum();
            assert_eq!(device(&sim, span, DeviceAccess::Read), sum);
            assert!((0..1024).all(|number| peek(page(number)) == (number + round - 1) as u8));
            (0..1024).for_each(|number| poke(page(number), (number + round) as u8));
        }
        device(&sim, Span::new(span.ptr, 2 << 20), DeviceAccess::Write(7));
        sim.prefetch_to(span, Location::device(DEVICE)).unwrap();
        assert_eq!((peek(page(0)), peek(page(511)), peek(page(512))), (7, 7, 3));
    });
}
