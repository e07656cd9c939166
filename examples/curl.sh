#!/usr/bin/env bash
# Talk to `mtplx serve` with curl.
# Usage: mtplx serve --model FOLDER
#        examples/curl.sh [URL]
set -euo pipefail
url=${1:-http://127.0.0.1:8000}

ask() {
    curl --silent --show-error --fail-with-body --no-buffer "$url$1" \
        -H 'content-type: application/json' -H "authorization: Bearer ${MTPLX_API_KEY:-none}" "${@:2}"
    echo
}

model=$(ask /v1/models | sed 's/.*"data":\[{"id":"\([^"]*\)".*/\1/')
question='[{"role": "user", "content": "Say hello."}]'

echo "# $model answers"
ask /v1/chat/completions -d "{\"model\": \"$model\", \"messages\": $question, \"max_tokens\": 40}"

echo "# the same, streamed"
ask /v1/chat/completions -d "{\"model\": \"$model\", \"messages\": $question, \"max_tokens\": 10, \"stream\": true}"

echo "# Anthropic's API"
ask /v1/messages -d "{\"model\": \"$model\", \"messages\": $question, \"max_tokens\": 40}"

echo "# what the server has done so far"
ask /v1/mtplx/stats
