//! Special registers by name.

use crate::code::Special;

/// A special register and its width in bits.
pub(super) fn special(name: &str) -> Option<(Special, u32)> {
    let name = name.strip_prefix('%')?;
    let axis = |name: &str| match name {
        "x" => Some(0),
        "y" => Some(1),
        "z" => Some(2),
        _ => None,
    };
    if let Some((base, last)) = name.split_once('.') {
        let axis = axis(last)?;
        let special = match base {
            "tid" => Special::Thread(axis),
            "ntid" => Special::Threads(axis),
            "ctaid" => Special::Block(axis),
            "nctaid" => Special::Blocks(axis),
            "clusterid" => Special::Cluster(axis),
            "nclusterid" => Special::Clusters(axis),
            "cluster_ctaid" => Special::ClusterBlock(axis),
            "cluster_nctaid" => Special::ClusterBlocks(axis),
            _ => return None,
        };
        return Some((special, 32));
    }
    let narrow = match name {
        "tid" => Special::Thread(0),
        "ntid" => Special::Threads(0),
        "ctaid" => Special::Block(0),
        "nctaid" => Special::Blocks(0),
        "laneid" => Special::Lane,
        "warpid" => Special::Warp,
        "nwarpid" => Special::Warps,
        "smid" => Special::Sm,
        "nsmid" => Special::Sms,
        "clock" => Special::Clock,
        "clock_hi" => Special::ClockHigh,
        "globaltimer_lo" => Special::GlobalTimerLow,
        "globaltimer_hi" => Special::GlobalTimerHigh,
        "lanemask_eq" => Special::MaskEqual,
        "lanemask_le" => Special::MaskLessOrEqual,
        "lanemask_lt" => Special::MaskLess,
        "lanemask_ge" => Special::MaskGreaterOrEqual,
        "lanemask_gt" => Special::MaskGreater,
        "dynamic_smem_size" => Special::DynamicShared,
        "total_smem_size" => Special::TotalShared,
        "aggr_smem_size" => Special::AllShared,
        "cluster_ctarank" => Special::ClusterRank,
        "cluster_nctarank" => Special::ClusterSize,
        "is_explicit_cluster" => Special::InCluster,
        "gridid" => return Some((Special::Grid, 64)),
        "clock64" => return Some((Special::Clock64, 64)),
        "globaltimer" => return Some((Special::GlobalTimer, 64)),
        "envreg1" => Special::WorkspaceHigh,
        "envreg2" => Special::WorkspaceLow,
        _ if numbered(name, "envreg", 32) || numbered(name, "pm", 8) => Special::Zero,
        // So on an H200, also in a kernel that uses both numbered offsets.
        "reserved_smem_offset_begin" | "reserved_smem_offset_0" | "reserved_smem_offset_1" => {
            Special::Zero
        }
        "reserved_smem_offset_end" => Special::ReservedEnd,
        "reserved_smem_offset_cap" => Special::ReservedBytes,
        _ => return None,
    };
    Some((narrow, 32))
}

fn numbered(name: &str, prefix: &str, count: u32) -> bool {
    let number = name.strip_prefix(prefix).and_then(|digits| digits.parse::<u32>().ok());
    number.is_some_and(|number| number < count)
}
