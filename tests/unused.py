"""Names of the package that nothing in it uses, each with who does: `make lint` gives this file to vulture.

Vulture looks at the package alone, so that what only tests use is found, too.
"""

# The import system calls them.
__getattr__  # lazy names of the package, and names that have moved
get_code

# setup.cfg names them as console scripts.
main
kubectl_podseat
kubectl_complete

# Users name it as gunicorn's --worker-class.
ThreadPerConnection

# Click reads it.
color

# RE2 reads it.
log_errors

# HiGHS reads them.
HandleKeyboardInterrupt
num_col_
num_row_
col_cost_
col_lower_
col_upper_
integrality_
row_lower_
row_upper_
format_
start_
index_
value_

# httptools calls them.
on_message_begin
on_header
on_headers_complete
on_body
on_message_complete

# IPython calls them.
__dir__

# Click reads the first two, and calls the others.
formatter_class
context_class
shell_complete
format_options

# msgspec writes them as JSON.
utilisation
imbalance
zone_imbalance
fragmentation
remaining_without

# Programs call them.
from_kubeconfig
explain_pending_groups
with_policy
to_frame

# Templates read them.
height
is_named

# Gunicorn calls or reads them.
handle_hup
handle_usr2
handle_ttin
load_config
check_config
_access_log_enabled

# Flask and werkzeug call or read them.
open_session
session_interface
preprocess_request
create_url_adapter
ensure_sync
process_response
do_teardown_request
do_teardown_appcontext
exc

# Logging reads them.
_srcfile
logMultiprocessing
logProcesses
logThreads

# Pydantic reads them.
model_config

# Fields of KubeSchedulerConfiguration that are accepted, and that change nothing here.
accept_content_types
resource_namespace
pre_filter
pre_score
placement_generate
placement_score
pod_group_post_filter
leader_election
enable_profiling
enable_contention_profiling
delay_cache_until_active
required_during_scheduling_ignored_during_execution
preferred_during_scheduling_ignored_during_execution

# Fields of documents for scripts, which are only checked.
first_outcome
group_kind
second_outcome

# Fields of API objects that are read or written as part of a whole: compared, hashed or encoded with it.
basic
termination_grace_period_seconds
disk_name
target_portal
lun
renew_time
api_group
container_name
resource_name

# Encoded as JSON with the struct or listed with the enum that they belong to.
assumed_pods
decided_by
refused_by
since_seconds
arriving
ABSOLUTE
RESOURCE_CLAIM_TEMPLATE
POD_DISRUPTION_BUDGET
PRIORITY_CLASS

# Events that every scheduler knows; tests send them.
NODE_ADD

# Rules of users ask them: examples/rules.
controller_of
count_placed
claim_refusal
count_owned_by

# Users of the library call or read them.
from_objects
explain_pending
examples

# `Moment.longest_since` goes over the fields.
boot

# They are read from a workload's manifest and written into the manifest of its pods.
runtime_class_name
completion_mode
manual_selector

# `cli.schemas` finds the shape of each kind of document by its name.
GroupExplanationDocument
ExplanationListDocument
PendingPodsDocument
DecisionsDocument
SimulationDocument
CapacityDocument
PlanDocument
ComparisonDocument
ReplayListDocument
RuleTrialsDocument
DiagnosisDocument
QueueDocument
CaseErrorDocument
CertificatesDocument
ReferenceDocument
NodeUsageDocument
ExperimentDocument
