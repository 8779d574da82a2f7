//! Random copies and fills leave what the same steps leave in vectors, on every back end.
#![cfg(target_os = "linux")]

use std::fmt::Debug;
use std::sync::{Arc, LazyLock};

use pagewise::bytemuck::Pod;
use pagewise::copy::{Elements, ElementsMut, Transfer, copy_from_slice, copy_to_slice};
use pagewise::{
    Device, DeviceBuffer, DriverVersion, Machine, ManagedBuffer, ManagedRangeMut, PinnedBuffer,
    Result, SimBackend, SimConfig, Stream, copy, copy_batch, fill,
};
use pagewise_cuda::CudaBackend;
use pagewise_tests::driver::SimulatedDriver;
use pagewise_tests::gpu::gpu;
use proptest::prelude::*;

/// Elements of each buffer: more than one page of each type, and no whole number of them.
const LENGTH: usize = 5000;

#[derive(Debug, Clone)]
struct Part {
    buffer: usize,
    from: usize,
    to: usize,
}

#[derive(Debug, Clone)]
enum Step {
    Fill(Part, u8),
    Copy(Part, usize, usize),
    /// A copy within one managed buffer.
    Within(usize, usize),
    /// Copies from the last buffer to the others, each with another length.
    Batch([usize; 3]),
    Slice(Part, u8),
    /// A look at a buffer midway.
    Look(usize),
    /// The next steps go to the other stream.
    Switch,
}

fn part() -> impl Strategy<Value = Part> {
    (0..4_usize, 0..LENGTH, 1..=LENGTH).prop_map(|(buffer, from, length)| {
        let to = (from + length).min(LENGTH);
        Part { buffer, from, to }
    })
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (part(), any::<u8>()).prop_map(|(part, value)| Step::Fill(part, value)),
        4 => (part(), 1..4_usize, 0..LENGTH).prop_map(|(to, other, at)| Step::Copy(to, other, at)),
        1 => (1..LENGTH, 1..LENGTH).prop_map(|(at, length)| Step::Within(at, length)),
        2 => [1..=LENGTH, 1..=LENGTH, 1..=LENGTH].prop_map(Step::Batch),
        2 => (part(), any::<u8>()).prop_map(|(part, value)| Step::Slice(part, value)),
        2 => (0..4_usize).prop_map(Step::Look),
        2 => Just(Step::Switch),
    ];
    proptest::collection::vec(step, 1..20)
}

/// Two managed buffers, one of a device, one of the host.
struct Buffers<T> {
    managed: [ManagedBuffer<T>; 2],
    device: DeviceBuffer<T>,
    pinned: PinnedBuffer<T>,
}

impl<T: Pod> Buffers<T> {
    fn new(machine: &Machine, stream: &Stream) -> Result<Self> {
        let mut device = DeviceBuffer::new(machine, Device::FIRST, LENGTH)?;
        fill(&mut device, T::zeroed(), stream)?;
        let mut pinned = PinnedBuffer::new(machine, LENGTH)?;
        pinned.write()?.fill(T::zeroed());
        let managed =
            [ManagedBuffer::zeroed(machine, LENGTH)?, ManagedBuffer::zeroed(machine, LENGTH)?];
        Ok(Self { managed, device, pinned })
    }

    fn read(&self, buffer: usize, from: usize, to: usize) -> Result<Elements<'_, T>> {
        match buffer {
            2 => self.device.range(from..to),
            3 => self.pinned.range(from..to),
            managed => Ok(self.managed[managed].range(from..to)?.into()),
        }
    }

    fn write(&mut self, part: &Part) -> Result<ElementsMut<'_, T>> {
        let range = part.from..part.to;
        match part.buffer {
            2 => self.device.range_mut(range),
            3 => self.pinned.range_mut(range),
            managed => Ok(self.managed[managed].range_mut(range)?.into()),
        }
    }

    /// Elements to be written and elements of another buffer to be read.
    fn both(
        &mut self,
        to: &Part,
        other: usize,
        from: usize,
        length: usize,
    ) -> Result<(ElementsMut<'_, T>, Elements<'_, T>)> {
        let Self { managed: [first, second], device, pinned } = self;
        let range = from..from + length;
        // A source is borrowed shared for as long as a destination is exclusively: of four buffers
        // every pair is taken apart here.
        let (mut writes, mut reads) = (None, None);
        macro_rules! assign {
            ($($index:literal $buffer:ident),*) => {$(
                if to.buffer == $index {
                    writes = Some($buffer.range_mut(to.from..to.to)?.into());
                } else if other == $index {
                    reads = Some($buffer.range(range.clone())?.into());
                }
            )*};
        }
        assign!(0 first, 1 second, 2 device, 3 pinned);
        Ok((writes.expect("one is written"), reads.expect("another is read")))
    }
}

/// The first elements of a range, which are all of them or leave some.
fn first<T: Pod>(range: ManagedRangeMut<'_, T>, length: usize) -> Result<ManagedRangeMut<'_, T>> {
    if range.len() == length {
        return Ok(range);
    }
    range.split_at(length).map(|(first, _)| first)
}

fn carry_out<T: Pod + From<u8>>(
    buffers: &mut Buffers<T>,
    model: &mut [Vec<T>; 4],
    step: &Step,
    stream: &Stream,
) -> Result<()> {
    match step {
        Step::Fill(part, value) => {
            fill(buffers.write(part)?, T::from(*value), stream)?;
            model[part.buffer][part.from..part.to].fill(T::from(*value));
        }
        Step::Copy(to, other, at) => {
            let other = (to.buffer + other) % 4;
            let length = (to.to - to.from).min(LENGTH - at);
            let to = Part { to: to.from + length, ..to.clone() };
            let (writes, reads) = buffers.both(&to, other, *at, length)?;
            copy(writes, reads, stream)?;
            let read = model[other][*at..at + length].to_vec();
            model[to.buffer][to.from..to.to].copy_from_slice(&read);
        }
        Step::Within(at, length) => {
            let length = (*length).min(*at).min(LENGTH - at);
            let (left, right) = buffers.managed[0].range_mut(..)?.split_at(*at)?;
            copy(first(right, length)?, &first(left, length)?, stream)?;
            model[0].copy_within(..length, *at);
        }
        Step::Batch(lengths) => {
            let Buffers { managed: [first, second], device, pinned } = buffers;
            let [a, b, c] = *lengths;
            let transfers = [
                Transfer::new(first.range_mut(..a)?, pinned.range(..a)?),
                Transfer::new(second.range_mut(LENGTH - b..)?, pinned.range(..b)?),
                Transfer::new(device.range_mut(..c)?, pinned.range(LENGTH - c..)?),
            ];
            copy_batch(&transfers, stream)?;
            let read = model[3].clone();
            model[0][..a].copy_from_slice(&read[..a]);
            model[1][LENGTH - b..].copy_from_slice(&read[..b]);
            model[2][..c].copy_from_slice(&read[LENGTH - c..]);
        }
        Step::Slice(part, value) => {
            let values: Vec<T> =
                (part.from..part.to).map(|at| T::from((at as u8).wrapping_mul(*value))).collect();
            copy_from_slice(buffers.write(part)?, &values, stream)?;
            model[part.buffer][part.from..part.to].copy_from_slice(&values);
        }
        Step::Look(_) | Step::Switch => {}
    }
    Ok(())
}

/// Compares a buffer with its model, by a view if the host has one, and by a copy.
fn look<T: Pod + PartialEq>(
    buffers: &Buffers<T>,
    model: &[Vec<T>; 4],
    buffer: usize,
    stream: &Stream,
) -> Result<()> {
    let expected = &model[buffer];
    if buffer < 2 {
        assert!(buffers.managed[buffer].read()? == expected, "managed memory {buffer}");
    } else if buffer == 3 {
        assert!(buffers.pinned.read()? == expected, "pinned memory");
    }
    let mut seen = vec![T::zeroed(); LENGTH];
    copy_to_slice(&mut seen, buffers.read(buffer, 0, LENGTH)?, stream)?;
    assert!(seen == *expected, "buffer {buffer}");
    Ok(())
}

fn agrees<T: Pod + From<u8> + PartialEq + Debug>(machine: &Machine, steps: &[Step]) -> Result<()> {
    let streams = [Stream::new(machine, Device::FIRST)?, Stream::new(machine, Device::FIRST)?];
    let mut buffers = Buffers::<T>::new(machine, &streams[0])?;
    let mut model = [(); 4].map(|()| vec![T::zeroed(); LENGTH]);
    let mut on = 0;
    for step in steps {
        carry_out(&mut buffers, &mut model, step, &streams[on])?;
        match step {
            Step::Look(buffer) => look(&buffers, &model, *buffer, &streams[on])?,
            Step::Switch => on = 1 - on,
            _ => {}
        }
    }
    (0..4).try_for_each(|buffer| look(&buffers, &model, buffer, &streams[on]))?;
    drop(buffers);
    assert_eq!(machine.failures_on_drop(), 0);
    Ok(())
}

/// The steps with elements of 1, 2 and 4 bytes.
fn agrees_by_type(machine: &Machine, steps: &[Step]) -> Result<()> {
    agrees::<u8>(machine, steps)?;
    agrees::<u16>(machine, steps)?;
    agrees::<u32>(machine, steps)
}

static DRIVER: LazyLock<Arc<SimulatedDriver>> = LazyLock::new(SimulatedDriver::load);

/// The driver of this machine for each version, opened once.
static GPU: LazyLock<Vec<(i32, Arc<CudaBackend>)>> = LazyLock::new(|| {
    let open = |version| {
        let opened = gpu(CudaBackend::builder().max_version(DriverVersion(version)));
        opened.map(|driver| (version, Arc::new(driver)))
    };
    [12000, 12080, 13000].into_iter().map_while(open).collect()
});

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(32) })]

    #[test]
    fn copies_and_fills_leave_what_vectors_hold_on_the_simulator(
        steps in steps(),
        version in prop_oneof![Just(12000), Just(12080), Just(13000)],
    ) {
        let config = SimConfig::h200().driver_version(DriverVersion(version));
        agrees_by_type(&Machine::from(Arc::new(SimBackend::new(config)?)), &steps)?;
    }

    #[test]
    fn copies_and_fills_leave_what_vectors_hold_on_the_simulated_driver(
        steps in steps(),
        version in prop_oneof![Just(12000), Just(12080), Just(13000)],
    ) {
        let driver = DRIVER.fresh(&format!("version={version}"));
        agrees_by_type(&Machine::from(Arc::new(driver)), &steps)?;
    }

    #[test]
    fn copies_and_fills_leave_what_vectors_hold_on_a_gpu(steps in steps()) {
        for (_, driver) in GPU.iter() {
            agrees_by_type(&Machine::from(driver), &steps)?;
        }
    }
}
