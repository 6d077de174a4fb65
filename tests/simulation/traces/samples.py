"""Small traces, written by hand in each format."""

TRACELAB = """\
session_id,arrival_time,round_idx,prefix_len,input_len,output_len,tool_wait_after_ms
a,0,0,100,500,64,1500
b,200,0,120,400,48,80
a,0,1,664,128,32,250.5
b,200,1,568,100,48,0
a,0,2,100,60,16,0
"""

TRACELAB_EXPORTED = """\
id,input_len,output_len,arrival_time,round_idx,tool_wait_after_ms,prefix_len
7,500,64,0.000000,0,1500.000000,0
7,128,32,0.000000,1,0.000000,564
"""

STEP_PROFILES = """\
program_id,step_id,prefill_s,decode_s,pause_s,tool_call_s,kv_hit_rate,completed_at
agent-1,1,0.15,2.3,0.0,0.0,,1770532800.0
agent-2,1,0.20,3.1,0.5,0.0,,1770532803.0
agent-1,2,0.08,1.8,9.0,1.25,0.85,1770532805.0
agent-1,3,0.08,1.8,0.0,0.5,0.85,1770532809.0
agent-1,1,0.09,1.2,0.0,0.0,,1770532900.0
"""


def stage(at, name, phase, step, *, instance="one", attempt=1):
    return (
        f'{{"timestamp":{at},"instance_id":"{instance}","thread":"Main","stage":"{name}","phase":"{phase}",'
        f'"step":{step},"attempt":{attempt}}}\n'
    )


STAGE_TIMINGS = "".join(
    (
        stage(100.0, "env_prepare", "enter", 0),
        stage(108.0, "env_prepare", "exit", 0),
        stage(110.0, "llm_reasoning", "enter", 1),
        stage(115.0, "llm_reasoning", "exit", 1),
        stage(115.5, "tool_execution", "enter", 1),
        stage(117.0, "tool_execution", "exit", 1),
        stage(118.0, "llm_reasoning", "enter", 2),
        stage(121.0, "llm_reasoning", "exit", 2),
        stage(121.0, "tool_execution", "enter", 2),
        stage(121.5, "tool_execution", "exit", 2),
        stage(200.0, "env_prepare", "enter", 0, attempt=2),
        stage(203.0, "llm_reasoning", "enter", 1, attempt=2),
        stage(204.0, "llm_reasoning", "exit", 1, attempt=2),
        stage(204.0, "llm_reasoning", "enter", 2, attempt=2),
    )
)

MOONCAKE = """\
{"timestamp": 0, "input_length": 1600, "output_length": 100, "hash_ids": [0, 1, 2, 3]}
{"timestamp": 0, "input_length": 1100, "output_length": 10, "hash_ids": [0, 4, 5]}
{"timestamp": 4000, "input_length": 2000, "output_length": 50, "hash_ids": [0, 1, 2, 6]}
{"timestamp": 5000, "input_length": 900, "output_length": 20, "hash_ids": [0, 7]}
"""

BURSTGPT = """\
Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type
100.0,s1,5,GPT-4,906,446,1352,Conversation log
101.0,,2,ChatGPT,36,29,65,API log
130.0,s1,3,GPT-4,1400,50,1450,Conversation log
140.0,s2,3,GPT-4,500,0,500,Conversation log
150.0,s1,3,GPT-4,1420,5,1425,Conversation log
"""

BURSTGPT_OLD = """\
Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type
5,ChatGPT,472,18,490,Conversation log
45,ChatGPT,1087,230,1317,Conversation log
"""

LLMSERVINGSIM = """\
{"session_id": "s0", "arrival_time_ns": 0, "sub_requests": [{"input_toks": 1472, "output_toks": 133, \
"tool_duration_ns": 500000000}, {"input_toks": 1582, "output_toks": 125, "tool_duration_ns": 250000000}, \
{"input_toks": 1000, "output_toks": 77, "tool_duration_ns": 0}]}
{"input_toks": 100, "output_toks": 50, "arrival_time_ns": 0}
{"session_id": "s2", "arrival_time_ns": 9, "sub_requests": []}
"""

LLMSERVINGSIM_TOKENS = """\
{"sub_requests": [{"input_toks": 3, "output_toks": 2, "input_tok_ids": [1, 2, 3], "output_tok_ids": [4, 5]}, \
{"input_toks": 6, "output_toks": 1, "input_tok_ids": [1, 2, 3, 4, 5, 6], "output_tok_ids": [7]}, \
{"input_toks": 5, "output_toks": 1, "input_tok_ids": [1, 2, 3, 4, 9]}]}
{"input_toks": 4, "output_toks": 3, "arrival_time_ns": 5, "input_tok_ids": [1, 2, 8, 8]}
"""

ALL = {
    "tracelab.csv": TRACELAB,
    "exported.csv": TRACELAB_EXPORTED,
    "step_profiles.csv": STEP_PROFILES,
    "stage_timings.jsonl": STAGE_TIMINGS,
    "mooncake.jsonl": MOONCAKE,
    "burstgpt.csv": BURSTGPT,
    "burstgpt_1.csv": BURSTGPT_OLD,
    "agentic.jsonl": LLMSERVINGSIM,
    "tokens.jsonl": LLMSERVINGSIM_TOKENS,
}
