"""The small scripts by which shells ask `nodectl __complete`.

They call nodectl by the name that was typed. Its answer: the kind of words the shell completes itself, or "words"; the
text to complete; then the candidates, each with its meaning behind a TAB, where the shell shows meanings. A candidate
ending in =, : or a comma goes on.
"""

_BASH = """\
# bash completion for nodectl; made by: nodectl completion bash
_nodectl() {
    local told nodectl=${1/#\\~\\//$HOME/}
    COMPREPLY=()
    mapfile -t told < <("$nodectl" __complete bash "$COMP_WORDBREAKS" "${COMP_LINE:0:COMP_POINT}" 2>/dev/null)
    case ${told[0]-} in
        files) compopt -o bashdefault -o default ;;
        directories) compopt -o dirnames ;;
        users) mapfile -t COMPREPLY < <(compgen -u -- "${told[1]}") ;;
        commands)
            case ${told[1]} in
                */*) compopt -o bashdefault -o default ;;
                *) mapfile -t COMPREPLY < <(compgen -c -- "${told[1]}" | sort -u) ;;
            esac
            ;;
        words) COMPREPLY=("${told[@]:2}") ;;
    esac
    case ${COMPREPLY[0]-} in
        *[=:,]) if [ "${#COMPREPLY[@]}" -eq 1 ]; then compopt -o nospace; fi ;;
    esac
}
complete -F _nodectl nodectl
"""

_ZSH = """\
#compdef nodectl
# zsh completion for nodectl; made by: nodectl completion zsh
_nodectl() {
    local -a told ends goes_on shown_ends shown_goes_on
    local line word shown nodectl=${(Q)words[1]/#\\~\\//$HOME/}
    told=("${(@f)$("$nodectl" __complete zsh "${(@Q)words[2,CURRENT-1]}" "${(Q)PREFIX}" 2>/dev/null)}")
    case $told[1] in
        files) compset -P '-*='; _files ;;
        directories) compset -P '-*='; _files -/ ;;
        users) compset -P '-*='; _users ;;
        commands) if [[ $told[2] == */* ]]; then _files; else _command_names -e; fi ;;
        words)
            for line in "${(@)told[3,-1]}"; do
                word=${line%%$'\\t'*}
                shown=${line/$'\\t'/  -- }
                if [[ $word == *[=:,] ]]; then
                    goes_on+=("$word") shown_goes_on+=("$shown")
                else
                    ends+=("$word") shown_ends+=("$shown")
                fi
            done
            (( $#ends )) && compadd -l -d shown_ends -a ends
            (( $#goes_on )) && compadd -l -S '' -d shown_goes_on -a goes_on
            ;;
    esac
}
if [[ $funcstack[1] == _nodectl ]]; then
    _nodectl "$@"
else
    compdef _nodectl nodectl
fi
"""

_FISH = """\
# fish completion for nodectl; made by: nodectl completion fish
function __nodectl_complete
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    set -l told (command $words[1] __complete fish $words[2..-1] -- "$current" 2>/dev/null)
    set -l before (string match -r '^-[^=]*=' -- "$current")
    switch "$told[1]"
        case files
            printf '%s\\n' $before(__fish_complete_path "$told[2]")
        case directories
            printf '%s\\n' $before(__fish_complete_directories "$told[2]" '')
        case users
            printf '%s\\n' $before(__fish_complete_users)
        case commands
            complete -C "$told[2]"
        case words
            printf '%s\\n' $told[3..-1]
    end
end
complete -c nodectl -f -a '(__nodectl_complete)'
"""

SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}
