//! Calls that touch memory, ask about it, and let work be waited for.

use pagewise_hal::{
    Backend, CopyAttributes, CopyFlags, DeviceAccess, DeviceAttribute, DeviceId, DevicePtr,
    DeviceTouch, EventFlags, FaultAccess, FunctionAttribute, FunctionHandle, HostAccess, HostTouch,
    KernelAccess, KernelAccesses, KernelParam, KernelWalk, KernelWork, LaunchShape, Location,
    LocationKind, ModuleHandle, PointerAttribute, RangeAttribute, RecordedBlock,
    RecordedBlocksWriter, RecordedLaunch, RecordedStep, SourceOrder, Span, SpanCopy, StreamFlags,
    StreamHandle, StridedSpan,
};

use super::round::Round;

impl Round<'_, '_> {
    pub(super) fn touch(&mut self) {
        let (span, stream) = (self.touched_span(), self.stream());
        let stride_bytes = match self.choices.below(4) {
            0 => self.choices.edge(),
            1 => 1 + self.choices.below(64),
            _ => 512 << self.choices.below(5),
        };
        let value = self.choices.byte();
        match self.choices.below(5) {
            0 | 1 => {
                let access = self.choices.one_of(&[HostAccess::Read, HostAccess::Write(value)]);
                let touch = HostTouch { span, stride_bytes, access };
                // SAFETY: only this round uses the memory, from one thread.
                self.call("host_touch", |sim| unsafe { sim.host_touch(touch) });
            }
            2 => {
                let kinds =
                    [DeviceAccess::Read, DeviceAccess::Write(value), DeviceAccess::AtomicAdd];
                let touch = DeviceTouch {
                    device: self.device(),
                    span,
                    stride_bytes,
                    access: self.choices.one_of(&kinds),
                    blocks: self.choices.one_of(&[1, 1, 4, 132, 0, u32::MAX]),
                    threads: self.choices.one_of(&[1, 1, 32, 256, 0, 1025, u32::MAX]),
                };
                // SAFETY: only this round uses the memory, from one thread.
                self.call("device_touch", |sim| unsafe { sim.device_touch(touch, stream) });
                self.kernel(touch, stream);
                self.virtual_memory(touch, stream);
            }
            3 => {
                // SAFETY: only this round uses the memory, from one thread.
                self.call("memset", |sim| unsafe { sim.memset(span, value, stream) });
                self.wide_fills(span, value, stream);
            }
            _ => {
                let from = self.ptr();
                // SAFETY: only this round uses the memory, from one thread, and the simulator
                // copies ranges that overlap like `memmove`.
                self.call("memcpy", |sim| unsafe {
                    sim.memcpy(span.ptr, from, span.bytes, stream)
                });
                self.copy_batches(span, from, stream);
            }
        }
    }

    /// Fills of more than a byte: they draw nothing, so that an input means the same as before there
    /// were any.
    fn wide_fills(&mut self, span: Span, value: u8, stream: StreamHandle) {
        let whole = Span::new(DevicePtr(span.ptr.0 & !3), span.bytes & !3);
        let (half, word) = (u16::from(value) * 257, u32::from(value) * 0x0101_0101);
        // SAFETY: only this round uses the memory, from one thread.
        self.call("memset_d16", |sim| unsafe { sim.memset_d16(span, half, stream) });
        // SAFETY: only this round uses the memory, from one thread.
        self.call("memset_d32", |sim| unsafe { sim.memset_d32(whole, word, stream) });
    }

    /// Batches of copies: they draw nothing, so that an input means the same as before there were
    /// any. Numbers of the range stand for starts, orders, flags and hints.
    fn copy_batches(&mut self, to: Span, from: DevicePtr, stream: StreamHandle) {
        let half = to.bytes / 2;
        let copies = [
            SpanCopy::new(to.ptr, from, half),
            SpanCopy::new(to.ptr.offset(half), from.offset(half), to.bytes - half),
        ];
        let odd = CopyAttributes {
            source_order: SourceOrder((to.ptr.0 >> 9) as i32 & 7),
            source_hint: Location { kind: LocationKind(to.bytes as i32 & 15), id: half as i32 },
            destination_hint: Location::HOST,
            flags: CopyFlags::from_bits_retain(half as u32 & 3),
        };
        let plain = CopyAttributes::default();
        let starts: [&[usize]; 3] = [&[0], &[0, 1], &[0, half as usize]];
        for (attributes, starts) in [(&[plain][..], starts[0]), (&[plain, odd], starts[1])]
            .into_iter()
            .chain([(&[odd, plain][..], starts[2]), (&[], &[])])
        {
            // SAFETY: only this round uses the memory, from one thread, and the simulator copies
            // ranges that overlap like `memmove`.
            self.call("memcpy_batch", |sim| unsafe {
                sim.memcpy_batch(&copies, attributes, starts, stream)
            });
        }
    }

    /// Calls about kernels, made from an access program: they draw nothing, so that an input means
    /// the same as before there were any.
    fn kernel(&mut self, touch: DeviceTouch, stream: StreamHandle) {
        let DeviceTouch { device, span, stride_bytes, access, blocks, threads } = touch;
        let (access, others) = match access {
            DeviceAccess::Read => (KernelAccess::Load, KernelAccess::Update),
            DeviceAccess::Write(_) => (KernelAccess::Store, KernelAccess::Load),
            DeviceAccess::AtomicAdd => (KernelAccess::Atomic, KernelAccess::Store),
        };
        let half = Span::new(span.ptr.offset(span.bytes / 2), span.bytes / 2);
        let strided = |span| StridedSpan { span, stride_bytes };
        let first = KernelWalk { access, places: vec![strided(span)] };
        let second = KernelWalk { access: others, places: vec![strided(half), strided(span)] };
        for walks in [vec![first.clone()], vec![first, second]] {
            let kernel = KernelAccesses { device, blocks, threads, walks };
            // SAFETY: only this round uses the memory, from one thread.
            self.call("kernel_accesses", |sim| unsafe { sim.kernel_accesses(&kernel, stream) });
        }
        self.recorded(touch, stream);
        // SAFETY: the simulator reads no image.
        self.call("module_load", |sim| unsafe { sim.module_load(device, b".version 6.0") });
        let (module, function) = (ModuleHandle::checked(span.ptr.0), FunctionHandle::NULL);
        self.call("module_function", |sim| sim.module_function(module, "kernel"));
        self.call("module_global", |sim| sim.module_global(module, "variable"));
        self.call("function_params", |sim| sim.function_params(function));
        let attribute = FunctionAttribute(threads as i32 & 15);
        self.call("function_attribute", |sim| sim.function_attribute(function, attribute));
        self.call("function_set_attribute", |sim| {
            sim.function_set_attribute(function, attribute, blocks as i32)
        });
        self.call("occupancy_blocks", |sim| sim.occupancy_blocks(function, threads, blocks));
        self.call("occupancy_best_block", |sim| {
            sim.occupancy_best_block(function, blocks, threads)
        });
        let shape = LaunchShape::linear(blocks, threads);
        let params = [KernelParam::from(span.ptr)];
        // SAFETY: the simulator runs no kernel.
        self.call("launch", |sim| unsafe { sim.launch(function, shape, &params, stream) });
        self.call("launch_traced", |sim| {
            // SAFETY: the simulator runs no kernel.
            unsafe { sim.launch_traced(function, shape, &params, stream) }
        });
        // SAFETY: the simulator runs no kernel and has no module.
        self.call("module_unload", |sim| unsafe { sim.module_unload(module) });
    }

    /// A launch by its accesses, which are whole or end early: it draws nothing either.
    fn recorded(&mut self, touch: DeviceTouch, stream: StreamHandle) {
        let DeviceTouch { device, span, stride_bytes, blocks, threads, .. } = touch;
        let step = |offset, ahead| RecordedStep::Access {
            range: 0,
            offset,
            access: FaultAccess::Write,
            ahead,
            waited: true,
            joined: offset % 2 == 1,
        };
        let warp = vec![
            step(0, 0),
            step(stride_bytes, 1),
            RecordedStep::Order(vec![1, 0]),
            RecordedStep::Resumption { of_grid: true, round: 1 },
            step(span.bytes / 2, 0),
        ];
        let mut writer = RecordedBlocksWriter::default();
        writer.push(&RecordedBlock { block: 0, slot: 0, warps: vec![(0, warp)] });
        let whole = writer.finish();
        let cut = whole.len() - 1 - span.bytes as usize % whole.len();
        for accesses in [&whole[..], &whole[..cut]] {
            let launch = RecordedLaunch {
                device,
                kernel: "recorded".to_owned(),
                grid: [blocks, 1, 1],
                block: [threads, 1, 1],
                registers: 32,
                shared_bytes: 0,
                multiprocessors: 132,
                blocks_each: 1,
                work: KernelWork::default(),
                ranges: vec![span],
                accesses: accesses.to_vec(),
            };
            // SAFETY: only this round uses the memory, from one thread.
            self.call("launch_recorded", |sim| unsafe { sim.launch_recorded(&launch, stream) });
        }
    }

    pub(super) fn query(&mut self) {
        let span = self.touched_span();
        match self.choices.below(10) {
            0 => {
                let attribute = RangeAttribute(self.small_i32());
                self.call("range_attribute", |sim| sim.range_attribute(span, attribute));
            }
            1 => {
                let mut out = vec![7; self.choices.below(40) as usize];
                self.call("range_accessed_by", |sim| sim.range_accessed_by(span, &mut out));
            }
            2 => {
                let attribute = PointerAttribute(self.small_i32());
                self.call("pointer_attribute", |sim| sim.pointer_attribute(span.ptr, attribute));
            }
            3 => {
                let device = self.device();
                let attribute = DeviceAttribute(self.choices.below(160) as i32);
                self.call("device_attribute", |sim| sim.device_attribute(device, attribute));
                let peer = DeviceId(attribute.0 % 4);
                self.call("can_access_peer", |sim| sim.can_access_peer(device, peer));
            }
            4 => {
                let device = self.device();
                self.call("memory_info", |sim| sim.memory_info(device));
            }
            5 => {
                self.call("host_page_map", |sim| sim.host_page_map(span));
            }
            6 => {
                self.call("take_events", Backend::take_events);
                self.call("events_since", |sim| sim.events_since(span.ptr.0));
                self.call("events_since", |sim| sim.events_since(span.bytes));
            }
            7 => {
                let before = self.sim.clock_ns();
                let duration_ns = self.choices.edge();
                self.call("sleep_ns", |sim| {
                    sim.sleep_ns(duration_ns);
                    Ok(())
                });
                assert!(self.sim.clock_ns() >= before, "time does not run backwards");
            }
            8 => {
                let faults: Vec<(u64, u64)> = (0..self.choices.below(3))
                    .map(|_| (self.choices.edge(), self.choices.edge()))
                    .collect();
                let duration_ns = self.choices.edge();
                let sim = self.sim;
                self.call("pace_next_op", |_| {
                    sim.pace_next_op(duration_ns, faults);
                    Ok(())
                });
            }
            _ => {
                let sim = self.sim;
                self.call("driver_version", |backend| backend.driver_version());
                self.call("device_count", |backend| backend.device_count());
                self.call("capabilities", |backend| Ok(backend.capabilities()));
                self.call("counters", |_| Ok((sim.counters(), sim.events_lost())));
            }
        }
    }

    pub(super) fn stream_or_event(&mut self) {
        let (stream, event) = (self.stream(), self.event());
        match self.choices.below(11) {
            0 | 1 => {
                let device = self.device();
                let flags =
                    StreamFlags::from_bits_retain(self.choices.one_of(&[0, 1, 2, u32::MAX]));
                let made = self.call("stream_create", |sim| sim.stream_create(device, flags));
                self.known.streams.extend(made);
            }
            2 => {
                let device = self.device();
                let flags = EventFlags::from_bits_retain(self.choices.one_of(&[0, 0, 1, 2, 4]));
                let made = self.call("event_create", |sim| sim.event_create(device, flags));
                self.known.events.extend(made);
            }
            3 => {
                // SAFETY: the simulator looks handles up and refuses those of destroyed streams, so
                // the round may pass such a handle again.
                self.call("stream_destroy", |sim| unsafe { sim.stream_destroy(stream) });
            }
            4 => {
                // SAFETY: the simulator looks handles up and refuses those of destroyed events, so
                // the round may pass such a handle again.
                self.call("event_destroy", |sim| unsafe { sim.event_destroy(event) });
            }
            5 => {
                self.call("event_record", |sim| sim.event_record(event, stream));
            }
            6 => {
                self.call("event_query", |sim| sim.event_query(event));
            }
            7 => {
                self.call("event_synchronize", |sim| sim.event_synchronize(event));
            }
            8 => {
                let start = self.event();
                self.call("event_elapsed_ns", |sim| sim.event_elapsed_ns(start, event));
            }
            9 => {
                self.call("stream_wait_event", |sim| sim.stream_wait_event(stream, event));
            }
            _ => {
                self.call("stream_synchronize", |sim| sim.stream_synchronize(stream));
            }
        }
    }
}
