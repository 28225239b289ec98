#include "base/settings_table.h"

#include "base/settings.h"

namespace tutti {
namespace {

using enum SettingType;

constexpr std::string_view kNoGpu =
    "no part of this library reads it: its GPU kernels choose for themselves";
constexpr std::string_view kNoVerbs = "links over InfiniBand and RoCE do not go by it";
constexpr std::string_view kNoNetwork = "links between hosts do not go by it";
constexpr std::string_view kNoPlugins = "plugins of this kind are not loaded";
constexpr std::string_view kNoRings = "NCCL_GRAPH_FILE gives channels by hand";
constexpr std::string_view kNoTuning = "this library's schedules have no such knob";
constexpr std::string_view kStagger =
    "from 257 ranks of a root on they come 7000 a second, by themselves";
constexpr std::string_view kNoPool =
    "no pool of operations is looked into: a link's ring wakes whoever moves it";
constexpr std::string_view kNoService = "there is no such service yet";
constexpr std::string_view kAlways = "this library always does so";
constexpr std::string_view kOrders =
    "calls that have no room side by side on a GPU always keep the program's order";

constexpr std::string_view kSharesAlready =
    "a child's links are made when it first calls, and its threads are the process's already";

constexpr std::string_view kDebugLevels = "NONE|VERSION|WARN|INFO|ABORT|TRACE";
constexpr std::string_view kSubsystems =
    "INIT|COLL|P2P|SHM|NET|GRAPH|TUNING|ENV|ALLOC|CALL|PROXY|NVLS|BOOTSTRAP|REG|PROFILE|RAS|"
    "DESTROY|ALLOC_HOST|ALL";
// Names that NCCL knows and this library lacks are allowed, so that "^NVLS" is no mistake.
constexpr std::string_view kAlgorithmNames =
    "ring|tree|oneshot|twoshot|hierarchical|direct|pairwise|rail|doubling|pat|collnetdirect|"
    "collnetchain|nvls|nvlstree";

// A name that NCCL knows, what it does there, and why it does nothing here.
constexpr SettingInfo idle(std::string_view name, std::string_view what, std::string_view why) {
  return {.name = name, .reason = what, .noEffect = why};
}

constexpr SettingInfo kTable[] = {
    // Log
    {"NCCL_DEBUG", kChoice, "", "NONE", kDebugLevels,
     "How much is logged. WARN shows each error where it is first known, INFO also what was chosen "
     "and why."},
    {"NCCL_DEBUG_SUBSYS", kList, "", "INIT,BOOTSTRAP,ENV", kSubsystems,
     "Which parts write INFO and TRACE lines; ^ in front: all but these."},
    {"NCCL_DEBUG_FILE", kPath, "", "", "",
     "Write the log to this file instead of standard output; %h is the host name, %p the process "
     "id, %% a %."},
    {"NCCL_DEBUG_TIMESTAMP_FORMAT", kText, "", "[%F %T] ", "",
     "How the time in front of a line is written, as strftime takes it."},
    {"NCCL_DEBUG_TIMESTAMP_LEVELS", kList, "", "WARN", "VERSION|WARN|INFO|ABORT|TRACE|ALL",
     "Lines of which levels begin with the time; ^ in front: all but these."},
    {"NCCL_WARN_ENABLE_DEBUG_INFO", kInteger, "", "0", "0..1",
     "1: the first warning turns INFO lines on, to see what follows a failure."},

    // Where ranks run, and how they find each other
    {"TUTTI_DEVICE", kChoice, "", "auto", "auto|host|cuda",
     "What a rank runs on. host: CPU ranks also where there is a GPU. auto: a GPU when there is "
     "one."},
    {"TUTTI_VIRTUAL_CLUSTER", kPath, "", "", "",
     "A cluster file: ranks are its GPUs (rank n the n-th, or as the device list of "
     "ncclCommInitAll says), and calls are compared and timed instead of being run. Must agree on "
     "all ranks."},
    {"TUTTI_VIRTUAL_SYSTEM", kChoice, "", "tutti", "tutti|nccl",
     "Whose choices and times virtual ranks have."},
    {"TUTTI_VIRTUAL_TRACE", kPath, "", "", "",
     "Write virtual ranks' calls to this file, for tutti sim --trace."},
    {"NCCL_SOCKET_IFNAME", kList, "", "", "",
     "Network interfaces to use, by prefix: eth,ib. = in front: exact names; ^ in front: all but "
     "these."},
    {"NCCL_SOCKET_NTHREADS", kInteger, "", "-1", "-1..16",
     "Threads that send the bytes of links between hosts over sockets, and as many that receive, "
     "for all links of a process; 1: ranks' own threads do; -1: two where links are faster than 20 "
     "Gbit/s, or do not say, there are eight CPUs for each rank, and a process has one, else 1."},
    {"NCCL_NSOCKS_PERTHREAD", kInteger, "", "-1", "-1..16",
     "Sockets of a link between hosts for each of NCCL_SOCKET_NTHREADS, 64 in all at most; -1: by "
     "the interfaces' speed. Of ranks that differ the larger number holds."},
    {"TUTTI_NET_OVERLAP", kInteger, "", "1", "0..2",
     "Whether ranks work on the next pieces of a long call while messages cross the network. 0: "
     "never. 1: where each rank has two CPUs. 2: always. The least of all ranks' holds."},
    {"TUTTI_NET_CHECKSUM", kInteger, "", "0", "0..1",
     "1: messages between hosts over sockets have a checksum (CRC-32C), and one that was changed "
     "on its way is an error that names the link, where TCP's own lets one in 65536 pass. Must "
     "agree on all ranks."},
    {"NCCL_SOCKET_FAMILY", kChoice, "", "", "AF_INET|AF_INET6",
     "Use IPv4 or IPv6 only; unset: either."},
    {"NCCL_COMM_ID", kText, "", "", "",
     "host:port or [IPv6]:port of rank 0, for programs that cannot pass the unique id around; set "
     "TUTTI_SECRET_FILE with it."},
    {"TUTTI_SECRET_FILE", kPath, "", "", "",
     "A file that is part of the ranks' shared key. It must be the user's own, with mode 600, and "
     "the same on all ranks."},
    {"TUTTI_SECURE", kChoice, "", "auth", "auth|encrypt",
     "What protects links between hosts: auth, an authenticated handshake; encrypt, every byte "
     "encrypted and authenticated besides, over sockets and no other network. Must agree on all "
     "ranks. Control messages are always encrypted."},
    {"NCCL_HOSTID", kText, "", "", "",
     "Takes the place of host name and boot id: ranks with equal ones share memory. For "
     "containers, and to play several hosts on one."},
    {"TUTTI_TIMEOUT_MS", kInteger, "ms", "10000", "200..86400000",
     "How long a rank may stay silent before every call that waits for it ends with an error."},
    {"TUTTI_INIT_TIMEOUT_MS", kInteger, "ms", "auto", "auto|200..86400000",
     "How long ranks that begin a communicator wait for those that have not come yet, or that live "
     "and are busy elsewhere; who is missing is logged meanwhile. auto: TUTTI_TIMEOUT_MS where "
     "that is set, else 600000, as PyTorch waits."},

    {"TUTTI_BUNDLE_DIR", kPath, "", "", "",
     "Folder for bundles: on a signal, and when ranks find another dead or stuck, a tar with all "
     "that is known of it. Empty: none, and SIGUSR1 is left alone."},
    {"NCCL_PROXY_DUMP_SIGNAL", kInteger, "", "-1", "-1..64",
     "Number of the signal on which TUTTI_BUNDLE_DIR gets a bundle or, where that is not set, the "
     "log at WARN is told what each rank and link of the process does; -1 or 0: SIGUSR1's, with "
     "TUTTI_BUNDLE_DIR only. One that the program handles stays the program's."},
    {"TUTTI_TRACE_DIR", kPath, "", "", "",
     "Folder for traces: each rank of each communicator writes one when it ends, with its calls, "
     "when they ran, on a GPU too, and their messages between hosts, for Perfetto. Empty: none."},
    {"TUTTI_TRACE_EVENTS", kInteger, "", "32768", "1024..16777216",
     "How many events a rank keeps for its trace, each 128 bytes; the newest overwrite the "
     "oldest."},
    {"NCCL_IGNORE_CPU_AFFINITY", kInteger, "", "0", "0..1",
     "A GPU rank makes its host memory on CPUs near its GPU, of those that its thread may run on. "
     "1: of all of them."},
    {"NCCL_NVTX_DISABLE", kInteger, "", "0", "0..1",
     "1: no NVTX ranges around calls, which tools such as Nsight Systems show."},
    {"TUTTI_GPU_WAIT_MS", kInteger, "ms", "0", "0..86400000",
     "How long a GPU kernel waits for a peer before it ends with an error; 0: until the peer "
     "comes, or is found dead."},

    // Moving data
    {"NCCL_MAX_CTAS", kInteger, "", "0", "0..2147483647",
     "Most thread blocks a GPU kernel uses for a collective (four at least for long ones of more "
     "than two ranks, and for those half as many again where buffers are not aligned to 16 bytes), "
     "or for each send and receive; 0: as the communicator's config says, or as "
     "many as pay. The smallest of all ranks counts."},
    {"NCCL_MAX_NCHANNELS", kInteger, "", "0", "0..2147483647",
     "Old name of NCCL_MAX_CTAS, which counts where both are set."},
    {"NCCL_MIN_CTAS", kInteger, "", "0", "0..2147483647",
     "Fewest thread blocks a GPU kernel uses, of those that NCCL_MAX_CTAS allows and while each "
     "has something to do; 0: as the communicator's config says, or as many as pay. The largest of "
     "all ranks counts."},
    {"NCCL_MIN_NCHANNELS", kInteger, "", "0", "0..2147483647",
     "Old name of NCCL_MIN_CTAS, which counts where both are set."},
    {"NCCL_CTA_POLICY", kInteger, "", "0", "0..3",
     "On all ranks. 1 or 3: long calls of more than two GPU ranks take 32 thread blocks instead of "
     "up to 192, for some of their speed, so that kernels beside them have multiprocessors "
     "(compute capability 9.0). 0 or 2: they take all. 2 or 3: all-gathers and all-to-alls of up "
     "to "
     "eight GPU ranks whose outputs are in symmetric windows go by copy engines at all lengths. "
     "Instead "
     "of the config's CTAPolicy; where neither is set, long calls take 32 as long as they find "
     "other kernels on a GPU"},
    {"NCCL_LOCAL_REGISTER", kInteger, "", "1", "0..1",
     "0: GPU ranks' kernels make no use of buffers that ncclCommRegister names"},
    {"NCCL_GRAPH_REGISTER", kInteger, "", "0", "0..1",
     "1: buffers of captured calls of GPU ranks are registered by themselves (NCCL's default)"},
    {"NCCL_GRAPH_MIXING_SUPPORT", kInteger, "", "1", "0..1",
     "0: the program orders the runs of graphs that hold calls of GPU ranks with each other and "
     "with its other calls on the communicator, by stream or event, and saves two nodes a graph, "
     "and, once calls have been captured, an event's wait and record at each other call. Instead "
     "of the config's graphUsageMode, of which 0 and 1 mean the same"},
    {"NCCL_WIN_ENABLE", kInteger, "", "1", "0..1",
     "0: ncclCommWindowRegister gives GPU ranks no window, as NCCL does where it cannot"},
    {"NCCL_CHECK_POINTERS", kInteger, "", "0", "0..1",
     "1: calls are refused whose buffers cannot be right: of GPU ranks those that no GPU can "
     "address, at the price of a question to the driver a buffer; of CPU ranks those that are not "
     "aligned to the type, not mapped, not writable, or overlap without being in place, at the "
     "price of reading /proc/self/maps."},
    {"NCCL_PROTO", kAlgorithms, "", "", "LL|LL128|Simple",
     "How GPU kernels may move bytes: with a flag in each store (LL), in each line (LL128), by "
     "slots (Simple). A list, ^ in front for all but these, or by collective; what no kernel can "
     "do for a call is ignored. Must agree on all GPU ranks."},
    {"NCCL_ALGO", kAlgorithms, "", "", kAlgorithmNames,
     "Algorithms to choose from: a list, ^ in front for all but these, or by collective: "
     "allreduce:oneshot;broadcast:ring. Names that this library lacks are known and never match. "
     "Must agree on all ranks."},
    {"TUTTI_TUNING_FILE", kPath, "", "", "",
     "What hops, messages and bytes take on this machine, as tutti tune measured it: algorithms of "
     "CPU ranks are chosen by these prices instead of the built-in ones. Must agree on all ranks."},
    {"TUTTI_TORCH_CACHE", kPath, "", "", "",
     "Where the Python package keeps the backend for torch.distributed that it compiled. Empty: "
     "tutti in XDG_CACHE_HOME, or else in ~/.cache."},
    {"NCCL_TUNER_PLUGIN", kText, "", "", "",
     "A tuner plug-in (versions 2 to 5) that may overrule the choice of algorithms: a path, "
     "libNAME.so, or NAME for libnccl-tuner-NAME.so; STATIC_PLUGIN: in the program; none: do "
     "not look for libnccl-tuner.so. Must agree on all ranks."},
    {"NCCL_PROFILER_PLUGIN", kText, "", "", "",
     "A profiler plug-in (versions 1 to 5) that is told of calls, when they ran, on a GPU too, and "
     "of their messages between hosts: a path, libNAME.so, or NAME for libnccl-profiler-NAME.so; "
     "STATIC_PLUGIN: in the program; none: do not look for libnccl-profiler.so."},
    {"NCCL_NET", kText, "", "", "",
     "The network between hosts, by name, and no other: Socket, IB (InfiniBand and RoCE), ofi "
     "(libfabric), or a plug-in's name. Unset: the config's netName, else the first plug-in that "
     "works, else IB, else libfabric where there are adapters for it, else sockets."},
    {"NCCL_NET_PLUGIN", kText, "", "", "",
     "Network plug-ins (versions 6 to 11), a list: each a path, libNAME.so, or NAME for "
     "libnccl-net-NAME.so; STATIC_PLUGIN: in the program; none: do not look for libnccl-net.so. "
     "One that fails is warned of, and sockets take its place."},
    {"NCCL_COLLNET_ENABLE", kInteger, "", "0", "0..1",
     "1: the network between hosts may reduce by itself (collective-network plug-ins, versions 6 "
     "to 11, among NCCL_NET_PLUGIN's), where all ranks have it: algorithms collnetchain and "
     "collnetdirect. In place of a communicator's collnetEnable."},
    {"NCCL_COLLNET_NODE_THRESHOLD", kInteger, "", "2", "2..1048576",
     "Hosts from which on it does."},
    {"NCCL_NET_GDR_LEVEL", kChoice, "", "", "LOC|PIX|PXB|P2C|PHB|SYS|0|1|2|3|4|5",
     "How far a network adapter may be from a GPU whose memory it reaches (GPUDirect), as tutti "
     "topo names it; LOC: no adapter does; unset: PXB. An adapter whose place is not known counts "
     "as PHB."},
    {"NCCL_NET_GDR_READ", kInteger, "", "-1", "-2..1",
     "Whether adapters read a GPU's memory, that is, send from it: 1: yes; 0: no; else GPUs of "
     "compute capability 8.0 and later."},
    {"NCCL_NET_GDR_C2C", kInteger, "", "1", "0..1",
     "1: with NCCL_NET_GDR_LEVEL unset also adapters at the GPU's own CPU, which it reaches by C2C "
     "(P2C)."},
    {"NCCL_DMABUF_ENABLE", kInteger, "", "1", "0..1",
     "0: adapters are told of a GPU's memory by its address, never by a descriptor."},
    {"TUTTI_GDR_FROM_BYTES", kInteger, "bytes", "65536", "1..1099511627776",
     "Calls of GPU ranks from this many bytes of a block on go by GPUDirect, where it is there; "
     "shorter ones through pinned memory. The largest of all ranks counts."},
    {"NCCL_PXN_DISABLE", kInteger, "", "0", "0..1",
     "1: no message goes to another host by way of a rank of the own one. tutti topo: nor a path."},
    {"NCCL_P2P_PXN_LEVEL", kInteger, "", "1", "0..2",
     "Whether messages do so, over the rank of the own host that has the receiver's adapters, or "
     "its seat. 0: never. 1: all-to-all (algorithm rail) where it is the cheapest, sends where "
     "the network is not TCP and only that rank names the receiver's adapters "
     "(NCCL_SOCKET_IFNAME and NCCL_IB_HCA alike). 2: always, all-to-all where hosts hold several "
     "ranks each, equally many. The least of all ranks' holds."},
    {"TUTTI_OFI_PROVIDER", kText, "", "", "",
     "Which of libfabric's providers, as fi_info names them (tcp, efa, psm3, verbs); unset: with "
     "NCCL_NET=ofi libfabric's first choice, else that of the adapters that are there."},
    {"NCCL_IB_DISABLE", kInteger, "", "0", "0..1", "1: no InfiniBand and RoCE."},
    {"NCCL_IB_HCA", kText, "", "", "",
     "Adapters to use, by how their names begin, with :port if one is meant: mlx5_0:1,mlx5_2. = in "
     "front: exact names; ^ in front: all but these."},
    {"NCCL_IB_GID_INDEX", kInteger, "", "-1", "-1..255",
     "Entry of the port's GID table; -1: on RoCE the best by the three settings below, on "
     "InfiniBand 0."},
    {"NCCL_IB_ADDR_FAMILY", kChoice, "", "", "AF_INET|AF_INET6",
     "RoCE: address family of the GID; unset: IPv4 if there is one."},
    {"NCCL_IB_ADDR_RANGE", kText, "", "", "", "RoCE: GIDs of this subnet only: 10.1.0.0/16."},
    {"NCCL_IB_ROCE_VERSION_NUM", kInteger, "", "auto", "auto|1..2",
     "RoCE version of the GID; auto: 2 if there is one."},
    {"NCCL_IB_TIMEOUT", kInteger, "", "20", "1..31",
     "How long an adapter waits for the other's acknowledgement: 4.096 us * 2^n."},
    {"NCCL_IB_RETRY_CNT", kInteger, "", "7", "0..7",
     "How often it sends anew before the link fails."},
    {"NCCL_IB_PKEY", kInteger, "", "0", "0..65535", "Entry of the port's table of partitions."},
    {"NCCL_IB_SL", kInteger, "", "0", "0..15",
     "Service level on InfiniBand; goes before a config's trafficClass."},
    {"NCCL_IB_TC", kInteger, "", "0", "0..255",
     "Traffic class (RoCE: DSCP * 4) of payloads; goes before a config's trafficClass."},
    {"NCCL_IB_FIFO_TC", kInteger, "", "-1", "-1..255",
     "Traffic class of what receivers say; -1: that of payloads."},
    {"NCCL_IB_USE_INLINE", kInteger, "", "1", "0..1",
     "0: messages of up to 64 bytes lie in memory for the adapter to read, too, rather than in the "
     "request."},
    {"NCCL_IB_ADAPTIVE_ROUTING", kInteger, "", "auto", "auto|0..1",
     "Whether packets may overtake each other: a message's end then goes behind its bytes. auto: "
     "on InfiniBand."},
    {"NCCL_IB_AR_THRESHOLD", kInteger, "bytes", "8192", "0..4294967295",
     "Only messages longer than this do so."},
    {"NCCL_IB_QPS_PER_CONNECTION", kInteger, "", "1", "1..32",
     "Queue pairs of a link on each port, for networks that spread load by flow (32 on all ports "
     "at most). The receiver's counts."},
    {"NCCL_IB_SPLIT_DATA_ON_QPS", kInteger, "", "0", "0..1",
     "1: every message goes over all of them; 0: over one on each port, in turns."},
    {"NCCL_IB_PCI_RELAXED_ORDERING", kInteger, "", "2", "0..2",
     "0: an adapter's writes reach memory in order, also where that is slower. 1, 2: payloads may "
     "overtake each other where the system supports it."},
    {"NCCL_IB_MERGE_NICS", kInteger, "", "1", "0..1",
     "1: ports of one card act as one adapter, over which each message is split."},
    {"NCCL_IB_MERGE_VFS", kInteger, "", "1", "0..1",
     "1: virtual functions count as the card that they are of."},
    {"NCCL_NET_MERGE_LEVEL", kChoice, "", "PORT", "PORT|LOC", "LOC: no ports act as one."},
    {"NCCL_IB_RETURN_ASYNC_EVENTS", kInteger, "", "1", "0..1",
     "1: a port that stays down for TUTTI_TIMEOUT_MS, and adapters and queue pairs that fail, end "
     "their links; 0: that is only told, and links end when a message fails."},
    {"NCCL_BUFFSIZE", kInteger, "bytes", "524288", "4096..1073741824",
     "Memory of one link between two ranks; four times that in a communicator of several hosts. "
     "More helps large messages until it leaves the cache. Must agree on all ranks."},
    {"NCCL_SHM_DISABLE", kInteger, "", "0", "0..1",
     "1: no shared memory between processes, to see whether it is at fault."},
    {"NCCL_P2P_DISABLE", kInteger, "", "0", "0..1",
     "1: ranks do not read each other's buffers directly; everything goes through shared slots, "
     "and what GPU ranks say to each other through host memory."},
    {"NCCL_P2P_LEVEL", kChoice, "", "", "LOC|NVL|NVB|C2C|PIX|PXB|P2C|PXN|PHB|SYS|0|1|2|3|4|5",
     "How far apart GPUs may be that use each other's memory, as tutti topo names it; LOC: never. "
     "The closest that a rank asks for counts. Ranks of one host with a pair farther apart go "
     "through host memory, all of them; of several hosts such pairs alone. Unset: the driver "
     "decides."},
    {"TUTTI_STAGING_BYTES", kInteger, "bytes", "4194304", "65536..1073741824",
     "A slot of pinned host memory, two a communicator, for GPU ranks that cannot use each other's "
     "memory. The smallest of all ranks counts."},
    {"TUTTI_HOME_CPUS", kInteger, "", "1", "0..1",
     "1: where ranks share all CPUs of a host, a rank that gives its CPU away again and again "
     "moves to the one that is its own share of them, since schedulers leave such ranks piled on "
     "one. Its affinity stays as it was. 0: the scheduler alone decides."},
    {"TUTTI_HELPER_THREADS", kInteger, "", "-1", "-1..15",
     "Threads that help a CPU rank to copy and reduce in long calls, of 1 MiB and more, and sleep "
     "otherwise; calls of two ranks that only move from 4 MiB on. At most as many as the CPUs that "
     "the rank may use besides its own. -1: as many as the machine's CPUs for each of its ranks "
     "but "
     "one, three at most."},
    {"TUTTI_PROCESS_READ", kInteger, "", "auto", "auto|0..1",
     "Whether ranks of different processes read each other's long messages with process_vm_readv, "
     "where the kernel allows it, rather than from shared slots. auto: each plan tries both and "
     "keeps the faster; 1: always; 0: never."},
    {"TUTTI_MAP_AFTER_BYTES", kInteger, "bytes", "524288", "0..1099511627776",
     "A peer maps memory of ncclMemAlloc, to read it in place, once so many of its bytes have gone "
     "there as copies: mapping takes as long as copying them. 0: with the first message."},
    {"TUTTI_STREAM_FROM_BYTES", kInteger, "bytes", "83886080", "0..1099511627776",
     "Calls store their outputs past the caches, where no peer reads them again, from this length "
     "of both buffers together on, counted over the communicator's ranks of a host."},

    // The machine
    {"NCCL_TOPO_FILE", kPath, "", "", "",
     "A topology XML, or hwloc's, to take instead of looking at the machine; the first rank of "
     "each host reads it. One that is no machine is warned of."},
    {"NCCL_TOPO_DUMP_FILE", kPath, "", "", "",
     "Write the host's topology here, as XML that NCCL_TOPO_FILE takes."},
    {"NCCL_TOPO_DUMP_FILE_RANK", kInteger, "", "0", "0..2147483647", "Which rank writes it."},
    {"NCCL_GRAPH_FILE", kPath, "", "", "",
     "A graph XML whose channels are shown and dumped for the host's GPUs instead of those that "
     "are searched; one of another machine is warned of."},
    {"NCCL_GRAPH_DUMP_FILE", kPath, "", "", "",
     "Write the channels of the host's GPUs here, as XML that NCCL_GRAPH_FILE takes."},
    {"NCCL_GRAPH_DUMP_FILE_RANK", kInteger, "", "0", "0..2147483647", "Which rank writes it."},

    // Communicators, files
    {"NCCL_COMM_BLOCKING", kInteger, "", "", "0..1",
     "Overrules the program's choice: 1 makes calls wait, 0 makes them return ncclInProgress."},
    {"NCCL_CONF_FILE", kPath, "", "", "",
     "Read settings from this file instead of ~/.nccl.conf; /etc/nccl.conf is read all the same, "
     "and the environment overrules both."},

    // Known but without effect. NCCL's: accepted, so that scripts written for it run without
    // complaint.
    idle("NCCL_SET_THREAD_NAME", "threads carry names", kAlways),
    idle("NCCL_MIN_P2P_NCHANNELS", "fewest channels of send and receive", kNoGpu),
    idle("NCCL_MAX_P2P_NCHANNELS", "most channels of send and receive", kNoGpu),
    idle("NCCL_NTHREADS", "threads of a thread block", kNoGpu),
    idle("NCCL_LL128_NTHREADS", "threads of a thread block, LL128", kNoGpu),
    idle("NCCL_CGA_CLUSTER_SIZE", "thread blocks of a cluster", kNoGpu),
    idle("NCCL_P2P_DIRECT_DISABLE", "no direct access within a process", kNoGpu),
    idle("NCCL_P2P_USE_CUDA_MEMCPY", "copy engines between GPUs", kNoGpu),
    idle("NCCL_P2P_READ_ENABLE", "read from peers instead of writing", kNoGpu),
    idle("NCCL_P2P_NET_CHUNKSIZE", "chunk of send and receive, network", kNoNetwork),
    idle("NCCL_P2P_NVL_CHUNKSIZE", "chunk of send and receive, NVLink", kNoGpu),
    idle("NCCL_P2P_PCI_CHUNKSIZE", "chunk of send and receive, PCIe", kNoGpu),
    idle("NCCL_P2P_LL_THRESHOLD", "largest send or receive by LL", kNoGpu),
    idle("NCCL_LL_BUFFSIZE", "buffer of the LL protocol", kNoTuning),
    idle("NCCL_LL128_BUFFSIZE", "buffer of the LL128 protocol", kNoTuning),
    idle("NCCL_CHUNK_SIZE", "chunk of collectives", kNoTuning),
    idle("NCCL_THREAD_THRESHOLDS", "bytes a thread by algorithm", kNoTuning),
    idle("NCCL_SHM_USE_CUDA_MEMCPY", "copy engines through host memory", kNoGpu),
    idle("NCCL_SHM_LOCALITY", "whose side holds a shared segment", kNoTuning),
    idle("NCCL_CUMEM_ENABLE", "CUDA virtual memory for buffers", kNoGpu),
    idle("NCCL_CUMEM_HOST_ENABLE", "CUDA virtual memory for host buffers", kNoGpu),
    idle("NCCL_NVLS_ENABLE", "reduction in the NVLink switch", kNoGpu),
    idle("NCCL_NVLS_NCHANNELS", "channels of NVLink switch reduction", kNoGpu),
    idle("NCCL_NVB_DISABLE", "no relay over another GPU", kNoGpu),
    idle("NCCL_MNNVL_ENABLE", "NVLink across nodes", kNoGpu),
    idle("NCCL_MNNVL_UUID", "NVLink domain", kNoGpu),
    idle("NCCL_MNNVL_CLIQUE_ID", "part of an NVLink domain", kNoGpu),
    idle("NCCL_MULTI_RANK_GPU_ENABLE", "several ranks on one GPU", kNoGpu),
    idle("NCCL_LAUNCH_MODE", "order of kernels in a group", kNoGpu),
    idle("NCCL_LAUNCH_ORDER_IMPLICIT", "order of communicators by program", kOrders),
    idle("NCCL_LAUNCH_RACE_FATAL", "racing launches are errors", kNoGpu),
    idle("NCCL_GRAPH_STREAM_ORDERING", "order of captured launches", kNoGpu),
    idle("NCCL_LEGACY_CUDA_REGISTER", "register buffers of cudaMalloc", kNoGpu),
    idle("NCCL_WIN_STRIDE", "distance of windows in address space", kNoGpu),
    idle("NCCL_SOCKET_RETRY_CNT", "how often to connect again",
         "TUTTI_TIMEOUT_MS bounds the time instead"),
    idle("NCCL_SOCKET_RETRY_SLEEP_MSEC", "pause before connecting again",
         "TUTTI_TIMEOUT_MS bounds the time instead"),
    idle("NCCL_SOCKET_POLL_TIMEOUT_MSEC", "poll instead of spin in bootstrap", kAlways),
    idle("NCCL_SOCKET_MAGIC", "first word on data sockets",
         "sockets are authenticated by a key instead"),
    idle("NCCL_OOB_NET_ENABLE", "bootstrap over the fast network", kNoNetwork),
    idle("NCCL_OOB_NET_IFNAME", "interface for that", kNoNetwork),
    idle("NCCL_UID_STAGGER_THRESHOLD", "ranks from which on connecting is staggered", kStagger),
    idle("NCCL_UID_STAGGER_RATE", "connections a second then", kStagger),
    idle("NCCL_TUNER_CONFIG_FILE", "table of NCCL's example tuner",
         "the plug-in reads it itself, if it is that one"),
    idle("NCCL_PROFILE_EVENT_MASK", "events of NCCL's example profiler",
         "the plug-in reads it itself, if it is that one"),
    idle("NCCL_ENV_PLUGIN", "settings from a plugin", kNoPlugins),
    idle("NCCL_GIN_PLUGIN", "plugin for networking from kernels", kNoPlugins),
    idle("NCCL_GIN_ENABLE", "networking from kernels", kNoGpu),
    idle("NCCL_GIN_TYPE", "kind of networking from kernels", kNoGpu),
    idle("NCCL_RMA_PLUGIN", "plugin for one-sided access", kNoPlugins),
    idle("NCCL_NET_FORCE_FLUSH", "flush after each receive", kNoGpu),
    idle("NCCL_NET_DISABLE_INTRA", "no network within a node", kNoNetwork),
    idle("NCCL_NET_OVERHEAD", "cost of a network message, ns", kNoNetwork),
    idle("NCCL_NET_SHARED_BUFFERS", "send and receive share buffers", kNoNetwork),
    idle("NCCL_NET_SHARED_COMMS", "channels share connections", kNoNetwork),
    idle("NCCL_NET_FORCE_MERGE", "NICs that must act as one", kNoNetwork),
    idle("NCCL_NET_OPTIONAL_RECV_COMPLETION", "skip waiting for small receives", kNoNetwork),
    idle("NCCL_NETDEVS_POLICY", "how NICs are handed out", kNoNetwork),
    idle("NCCL_NCHANNELS_PER_NET_PEER", "channels to a remote peer", kNoNetwork),
    idle("NCCL_CROSS_NIC", "a ring may change NIC between nodes", kNoNetwork),
    idle("NCCL_GDRCOPY_ENABLE", "GDRCopy for flags", kNoGpu),
    idle("NCCL_GDRCOPY_SYNC_ENABLE", "GDRCopy for synchronisation", kNoGpu),
    idle("NCCL_GDRCOPY_FLUSH_ENABLE", "GDRCopy for flushes", kNoGpu),
    idle("NCCL_GDR_FLUSH_DISABLE", "no flush after a NIC wrote", kNoGpu),
    idle("NCCL_IB_ROUTABLE_FLID_GID_INDEX", "GID for routable LIDs", kNoVerbs),
    idle("NCCL_IB_CUDA_SUPPORT", "old name of NCCL_NET_GDR_LEVEL", kNoVerbs),
    idle("NCCL_IB_WARN_RAIL_LOCAL", "warn when rails mix", kNoVerbs),
    idle("NCCL_IB_ECE_ENABLE", "enhanced connection establishment", kNoVerbs),
    idle("NCCL_IB_DATA_DIRECT", "data-direct adapters", kNoVerbs),
    idle("NCCL_IB_MQP_RETRY_ALL", "retry queue pair changes", kNoVerbs),
    idle("NCCL_IB_MQP_RETRY_CNT", "how often", kNoVerbs),
    idle("NCCL_IB_MQP_RETRY_SLEEP_MSEC", "pause between", kNoVerbs),
    idle("NCCL_IB_RESILIENCY_PORT_FAILOVER", "go on over another port", kNoVerbs),
    idle("NCCL_IB_RESILIENCY_PORT_RECOVERY", "return to a mended port", kNoVerbs),
    idle("NCCL_RINGS", "rings by hand", kNoRings),
    idle("NCCL_PXN_C2C", "relays over another GPU's NIC over C2C", kNoGpu),
    idle("NCCL_PAT_ENABLE", "the PAT algorithm", kNoTuning),
    idle("NCCL_SINGLE_RING_THRESHOLD", "bytes up to which one ring is used", kNoTuning),
    idle("NCCL_TREE_THRESHOLD", "bytes up to which trees are used", kNoTuning),
    idle("NCCL_SYM_KERNEL", "kernel for symmetric memory", kNoGpu),
    idle("NCCL_SYM_CTAS", "thread blocks of such kernels", kNoGpu),
    idle("NCCL_RUNTIME_CONNECT", "connect at first use", kAlways),
    idle("NCCL_COMM_SPLIT_SHARE_RESOURCES", "split communicators share buffers", kSharesAlready),
    idle("NCCL_COMM_SHRINK_SHARE_RESOURCES", "shrunk communicators share buffers", kNoTuning),
    idle("NCCL_CHECK_MODE", "check arguments across ranks", kAlways),
    idle("NCCL_CHECKS_DISABLE", "no argument checks", "checks are cheap enough to stay on"),
    idle("NCCL_RAS_ENABLE", "health service", kNoService),
    idle("NCCL_RAS_ADDR", "its address", kNoService),
    idle("NCCL_RAS_TIMEOUT_FACTOR", "its patience", kNoService),
    idle("NCCL_PROXY_APPEND_BATCH_SIZE", "operations taken at once", kNoPool),
    idle("NCCL_PROGRESS_APPENDOP_FREQ", "how often new operations are looked for", kNoPool),
    idle("NCCL_IGNORE_DISABLED_P2P", "no complaint about disabled access", kNoGpu),
    idle("NCCL_IGNORE_NET_MISMATCH", "networks may differ between ranks", kNoNetwork),
    idle("NCCL_IGNORE_COLLNET_MISMATCH", "the same for in-network reduction", kNoNetwork),
    idle("NCCL_SET_STACK_SIZE", "stack of GPU kernels", kNoGpu),
    idle("NCCL_SET_CPU_STACK_SIZE", "stack of threads", kNoTuning),
    idle("NCCL_WORK_FIFO_BYTES", "queue of GPU work", kNoGpu),
    idle("NCCL_WORK_ARGS_BYTES", "arguments of a GPU kernel", kNoGpu),
    idle("NCCL_ALLOC_P2P_NET_LL_BUFFERS", "LL buffers for send and receive", kNoNetwork),
    idle("NCCL_PARAM_DUMP_ALL", "print all parameters", "`tutti settings --all` prints them"),
};

constexpr std::string_view kForeign[] = {
    // builds
    "NCCL_ROOT",
    "NCCL_HOME=",
    "NCCL_VERSION",
    "NCCL_INCLUDE_DIR",
    "NCCL_LIB",
    "NCCL_DIR=",
    "NCCL_PATH=",
    "NCCL_PREFIX=",
    "NCCL_BUILD",
    "NCCL_SRC",
    "NCCL_STATIC",
    "NCCL_CUDA_VERSION=",
    // nccl-tests, plugins
    "NCCL_TESTS_",
    "NCCL_INSPECTOR_",
    "NCCL_OFI_",
    "NCCL_UCX_",
    "NCCL_SHARP_",
    "NCCL_PLUGIN_P2P=",
    "NCCL_FASTRAK_",
    "NCCL_FASTSOCKET",
    "NCCL_GPUDIRECTTCPX_",
    "NCCL_TCPX",
    "NCCL_DYNAMIC_CHUNK_SIZE=",
    "NCCL_COMMA_",
    "NCCL_PROFILER_",
    // names PyTorch and others once read
    "NCCL_ASYNC_ERROR_HANDLING=",
    "NCCL_BLOCKING_WAIT=",
    "NCCL_DESYNC_DEBUG=",
    "NCCL_ENABLE_TIMING=",
    "NCCL_TIMEOUT=",
    "NCCL_TRACE_",
    "NCCL_DUMP_ON_TIMEOUT=",
    "NCCL_USE_COMM_NONBLOCKING=",
    "NCCL_SO_PATH=",
};

}  // namespace

std::span<const SettingInfo> settingTable() { return kTable; }

std::span<const std::string_view> foreignNames() { return kForeign; }

}  // namespace tutti
