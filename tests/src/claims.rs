//! The list of the claims.

/// Gives every claim to another macro, as `module::function`: first those that hold on every
/// machine, then those about calls that a device without
/// [`Capabilities::concurrent_managed_access`](pagewise::Capabilities) refuses.
///
/// Test programs make a test of each claim from it, and the lists below are made from it.
#[macro_export]
macro_rules! with_claims {
    ($then:ident) => {
        $then! {
            on_every_machine {
                advice::unknown_advice_is_an_invalid_value
                advice::an_empty_range_is_refused_before_an_unknown_ordinal
                advice::an_unknown_ordinal_is_refused_before_the_range
                advice::advice_that_ignores_the_location_accepts_any_ordinal
                advice::an_unknown_device_is_an_invalid_value_in_the_location_form
                advice::the_type_of_a_location_is_checked_even_if_its_id_is_not
                advice::a_range_must_end_in_the_allocation_that_it_starts_in
                advice::advice_is_reported_for_every_page_that_the_range_touches
                advice::the_location_form_is_absent_before_cuda_12_2
                copies::fills_of_2_and_4_bytes_repeat_their_value_and_change_nothing_else
                copies::fills_of_2_and_4_bytes_take_whole_elements_inside_an_allocation
                copies::a_batch_of_copies_makes_each_copy_with_the_attributes_of_its_start
                copies::a_batch_of_copies_refuses_the_legacy_stream_and_malformed_lists
                copies::a_batch_of_copies_refuses_unknown_orders_flags_and_hints
                copies::a_batch_of_copies_ends_at_the_first_bad_one_and_names_it
                memory::an_allocation_of_2_mib_starts_on_a_2_mib_boundary
                memory::small_allocations_do_not_overlap
                memory::an_address_knows_its_allocation
                memory::an_address_of_nothing_is_an_invalid_value
                memory::an_unknown_device_is_an_invalid_device
                memory::each_device_has_its_place_on_the_pci_and_is_no_peer_of_itself
                memory::host_and_device_reach_memory_by_one_address
                memory::free_memory_is_at_most_all_memory
                memory::what_the_host_writes_the_device_reads_and_back
                memory::atomics_add_up
                memory::an_atomic_whose_word_reaches_beyond_its_range_is_refused_and_changes_nothing
                memory::memset_and_memcpy_change_what_they_name_and_nothing_else
                memory::a_program_outside_an_allocation_is_an_illegal_address
                memory::a_program_in_a_stream_of_another_device_is_an_invalid_handle
                memory::devices_are_numbered_from_0_up_to_their_count
                memory::events_tell_the_nanoseconds_of_the_work_between_them
                memory::fills_copies_and_prefetches_take_a_stream_of_any_device
                virtual_memory::physical_memory_counts_from_its_creation_until_no_mapping_and_no_handle_is_left
                virtual_memory::reservations_are_whole_units_aligned_as_asked_and_freed_whole
                virtual_memory::a_free_hint_is_where_addresses_are_reserved
                virtual_memory::physical_memory_is_pinned_of_whole_units_and_of_a_place_that_has_some
                virtual_memory::the_granularity_is_that_of_any_properties
                virtual_memory::memory_is_mapped_whole_where_a_reservation_is_vacant
                virtual_memory::a_range_is_unmapped_unless_it_cuts_a_mapping
                virtual_memory::mapped_memory_is_accessed_by_those_that_were_given_access
                virtual_memory::mappings_side_by_side_are_one_range
                virtual_memory::memory_shows_the_same_bytes_wherever_it_is_mapped
                virtual_memory::mapped_memory_is_device_memory_that_no_other_call_frees
                virtual_memory::attributes_of_mapped_memory_describe_its_reservation
                virtual_memory::fills_and_copies_of_memory_without_access_are_refused_and_others_go_on
            }
            with_concurrent_access {
                advice::a_numa_location_never_reaches_the_memory
                advice::accessed_by_lists_devices_then_the_host_then_nothing
                advice::a_short_accessed_by_list_holds_the_first_processors
                advice::unset_advice_leaves_nothing_to_report
                advice::a_failed_call_changes_nothing
                batches::a_batch_refuses_the_legacy_stream_and_flags
                batches::a_batch_refuses_malformed_lists
                batches::a_location_of_a_batch_may_serve_no_range
                batches::a_batch_with_one_bad_range_moves_nothing
                batches::an_unknown_device_is_an_invalid_value_in_a_batch
                batches::each_location_serves_the_ranges_up_to_the_next_start
                batches::ranges_of_a_batch_may_overlap
                batches::a_batch_records_the_id_of_the_host_as_it_was_passed
                batches::discard_is_absent_before_cuda_13
                batches::discard_takes_unaligned_ranges_and_leaves_the_last_prefetch
                batches::discard_unmaps_the_pages_that_it_covers_whole_and_no_others
                batches::discard_of_a_block_with_duplicated_pages_unmaps_only_those
                handles::a_stream_that_was_destroyed_or_made_up_is_refused_by_every_call
                handles::an_event_that_was_destroyed_or_made_up_is_refused_by_every_call
                handles::a_pool_that_was_destroyed_or_made_up_is_refused_by_every_call
                handles::a_refused_end_of_a_default_pool_leaves_it_live
                movement::a_prefetch_to_an_unknown_device_is_an_invalid_device
                movement::an_empty_range_and_flags_are_refused_before_the_device
                movement::an_unknown_device_is_refused_before_the_range
                movement::a_prefetch_is_recorded_even_if_nothing_moves
                movement::a_prefetch_to_the_host_maps_whole_pages_there_and_to_the_device_unmaps_them
                movement::each_kind_of_location_is_recorded_as_itself
                movement::a_range_never_prefetched_or_mixed_reports_none
                movement::memory_of_one_stream_moves_for_that_stream_and_is_left_alone_by_others
                movement::fills_and_copies_of_plain_memory_leave_what_is_attached_to_their_stream
                pools::managed_pools_are_destroyed_in_any_order
                pools::a_destroyed_pool_is_not_current
                pools::memory_that_comes_to_a_pool_again_keeps_its_last_prefetch_location
                pools::memory_of_a_pool_belongs_to_the_pools_device
                sharing::registered_memory_is_known_until_it_is_not
                sharing::an_atomic_never_writes_host_memory_beside_what_is_registered
                sharing::a_page_is_registered_once
                sharing::memory_that_the_driver_gave_is_not_registered
                sharing::only_flags_of_ordinary_memory_are_taken
                sharing::a_pool_is_exported_in_the_way_that_it_was_made_for
                sharing::only_first_bytes_of_memory_of_exported_pools_are_exported
                sharing::a_handle_that_is_none_is_not_imported
                sharing::only_plain_device_memory_has_a_handle
            }
        }
    };
}

/// A claim: its name and how to check it. Panics if it does not hold.
pub type Claim = (&'static str, fn(&dyn pagewise::Backend));

macro_rules! lists {
    (on_every_machine { $($module:ident::$claim:ident)* }
     with_concurrent_access { $($other_module:ident::$other:ident)* }) => {
        /// Every claim.
        pub const CLAIMS: &[Claim] = &[
            $((stringify!($claim), crate::$module::$claim),)*
            $((stringify!($other), crate::$other_module::$other),)*
        ];

        /// Those that also hold without concurrent managed access.
        pub const CLAIMS_WITHOUT_CONCURRENT_ACCESS: &[Claim] =
            &[$((stringify!($claim), crate::$module::$claim)),*];
    };
}

with_claims!(lists);
